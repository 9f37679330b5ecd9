"""`precision-time k8s serve`: the process that kube-scheduler asks."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .cluster import IN_CLUSTER, api_client

if TYPE_CHECKING:
    from ..config import Config
    from ..server.service import Parts
    from ..server.state import State

SWITCH_S = 0.0005  # calls get the interpreter back from the other threads within this
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@click.command()
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The configuration file.  [default: all defaults]",
)
@click.option(
    "--kubeconfig",
    default=IN_CLUSTER,
    show_default=True,
    metavar="FILE|in-cluster",
    help="How to reach the API server.",
)
@click.option("--check-config", is_flag=True, help="Read configuration and rules, say so, and end.")
def serve(config: Path | None, kubeconfig: str, check_config: bool) -> None:
    """Answer kube-scheduler and the API server, in the foreground.

    Configuration, site rules and certificates are read anew when their files change. SIGTERM
    ends, after other replicas had time to take over. The log goes to stderr.
    """
    # Decisions are small products: threads of a BLAS would cost more than they save.
    for variable in THREAD_VARIABLES:
        os.environ.setdefault(variable, "1")
    from ..server.loading import config_at, rules_of
    from ..server.logs import logging_to

    configuration = config_at(config)
    rules_of(configuration)
    if check_config:
        click.echo(f"{config or 'defaults'}: the configuration can be used")
        return
    import uvloop

    from ..server.service import Service

    sys.setswitchinterval(SWITCH_S)
    parts = _parts(configuration, kubeconfig)
    with logging_to(configuration.server.log_format) as log:
        service = Service(configuration, config, parts, log)
        uvloop.run(service.run())


def _parts(config: Config, kubeconfig: str) -> Parts:
    from ..alike import Alike
    from ..node_labels import gpu_node
    from ..nodes import NodeWatch
    from ..server.service import Parts
    from ..workload import pod_job
    from ..writeback import Writeback

    client = api_client(kubeconfig)

    def hearing(state: State) -> Writeback:
        return Writeback(client, version=lambda: state.brain.version if state.brain else "")

    return Parts(
        nodes=NodeWatch(client, config), job_of=Alike(pod_job), gpu_node=gpu_node, hearing=hearing
    )
