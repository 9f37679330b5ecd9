"""`precision-time k8s serve`: the process that kube-scheduler asks."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from predictor.service.process import one_thread_for_algebra

from .cluster import IN_CLUSTER, api_client

if TYPE_CHECKING:
    from ..server.state import ServerState

PACKAGES = ("k8s_extender", "predictor", "uvicorn")  # whose words are logged


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
    one_thread_for_algebra()
    from predictor.service.logs import logging_to

    from ..server.loading import config_at, rules_of

    configuration = config_at(config)
    rules_of(configuration)
    if check_config:
        click.echo(f"{config or 'defaults'}: the configuration can be used")
        return
    import uvloop

    from ..nodes import NodeWatch
    from ..server.service import ExtenderServer
    from ..writeback import Writeback

    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    client = api_client(kubeconfig)
    nodes = NodeWatch(client, configuration)

    def writeback(state: ServerState) -> Writeback:
        return Writeback(client, version=lambda: state.decider.version if state.decider else "")

    with logging_to(configuration.server.log_format, *PACKAGES):
        uvloop.run(ExtenderServer(configuration, config, nodes, writeback).run())
