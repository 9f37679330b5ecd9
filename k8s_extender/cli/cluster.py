"""The API server, reached with a kubeconfig file or the account of the pod."""

from __future__ import annotations

from typing import Any

import click

from ..errors import ClusterError

IN_CLUSTER = "in-cluster"
KUBECONFIG = "KUBECONFIG"  # the variable that kubectl reads

kubeconfig_option = click.option(
    "--kubeconfig",
    default=IN_CLUSTER,
    show_default=True,
    envvar=KUBECONFIG,
    show_envvar=True,
    metavar=f"FILE|{IN_CLUSTER}",
    help="How to reach the API server.",
)


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
