"""`precision-time k8s`: the group of the commands for Kubernetes, each imported when needed."""

from __future__ import annotations

import click

from predictor.cli.groups import CommandGroup

# Command -> module of this package that holds it, in the order of the help.
MODULES = {"serve": "serve", "check": "check", "audit": "audit", "eta": "eta"}


@click.group(cls=CommandGroup, package=__name__, modules=MODULES)
def k8s() -> None:
    """Rank GPU nodes by predicted time and fill deadlines in Kubernetes.

    `serve` answers the API server and kube-scheduler, `check` says what stands in the way, `audit`
    sums up what was done, `eta` tells when jobs are expected to end.
    """
