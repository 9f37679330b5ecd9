"""`precision-time k8s`: the group of the commands for Kubernetes, each imported when needed."""

from __future__ import annotations

from typing import Any

import click

from predictor.cli.groups import CommandGroup
from predictor.cli.options import listed_options

from ..errors import ClusterError

IN_CLUSTER = "in-cluster"
KUBECONFIG = "KUBECONFIG"  # the variable that kubectl reads
# Command -> module of this package that holds it, in the order of the help.
MODULES = {"serve": "serve", "check": "serve"}
MODULES |= {name: name for name in ("audit", "eta", "identify")}

config_option, kubeconfig_option = map(listed_options, ("k8s-config", "kubeconfig"))


@click.group(cls=CommandGroup, package=__name__, modules=MODULES)
def k8s() -> None:
    """Rank GPU nodes by predicted time and fill deadlines in Kubernetes.

    `serve` answers the API server and kube-scheduler, `check` says what stands in the way, `audit`
    sums up what was done, `eta` tells when jobs are expected to end, `identify` what a manifest is.
    """


def api_client(kubeconfig: str) -> Any:
    """A `kubernetes.client.ApiClient`; raises ClusterError where there is no way to the server."""
    from kubernetes import client
    from kubernetes import config as loading
    from kubernetes.config.config_exception import ConfigException

    settings = client.Configuration()
    loader: Any = loading
    try:
        if kubeconfig == IN_CLUSTER:
            loader.load_incluster_config(settings)
        else:
            loader.load_kube_config(kubeconfig, client_configuration=settings)
    except (ConfigException, OSError, ValueError) as error:
        raise ClusterError(
            f"invalid --kubeconfig={kubeconfig} ({error}); "
            f"expected a kubeconfig file or, in a pod, {IN_CLUSTER}"
        ) from None
    return client.ApiClient(settings)
