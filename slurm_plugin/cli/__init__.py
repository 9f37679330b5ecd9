"""`precision-time slurm`: the group of the commands for Slurm, each imported when it is needed."""

from __future__ import annotations

import click

from predictor.cli.groups import CommandGroup

# Command -> module of this package that holds it, in the order of the help.
MODULES = {
    "install": "install",
    "check": "install",
    "uninstall": "install",
    "daemon": "daemon",
    "decide": "decide",
    "nodes": "nodes",
    "label-nodes": "nodes",
    "watch": "watch",
    "eta": "eta",
}


@click.group(cls=CommandGroup, package=__name__, modules=MODULES)
def slurm() -> None:
    """Fill time limits and place jobs in Slurm, at submit.

    `install` changes slurm.conf and job_submit.lua, `daemon` answers the hook.
    """
