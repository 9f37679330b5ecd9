"""`precision-time k8s serve`: the process that kube-scheduler asks."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from predictor.service.process import one_thread_for_algebra

from ..config import config_at
from . import IN_CLUSTER, api_client, config_option

if TYPE_CHECKING:
    from ..server.state import ServerState

PACKAGES = ("k8s_extender", "predictor", "uvicorn", "asyncio")  # whose words are logged


@click.command()
@config_option
@click.option(
    "--kubeconfig",
    default=IN_CLUSTER,
    show_default=True,
    metavar="FILE|in-cluster",
    help="How to reach the API server.",
)
@click.option(
    "--audit",
    default="",
    metavar="NAMESPACE/NAME",
    help="Keep what `k8s audit` sums in this ConfigMap.  [default: in memory]",
)
def serve(config: Path | None, kubeconfig: str, audit: str) -> None:
    """Answer kube-scheduler and the API server, in the foreground.

    Configuration, site rules and certificates are read anew when their files change. SIGTERM
    ends, after other replicas had time to take over. The log goes to stderr.
    """
    one_thread_for_algebra()
    from predictor.service.logs import logging_to

    configuration = config_at(config)
    configuration.site_rules()
    import uvloop

    from ..bound import BoundPods
    from ..claims import Devices
    from ..nodes import NodeWatch
    from ..server.service import ExtenderServer
    from ..writeback import Writeback

    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    client = api_client(kubeconfig)
    nodes = NodeWatch(client, configuration)

    def writeback(state: ServerState) -> Writeback:
        return Writeback(client, version=lambda: state.decider.version if state.decider else "")

    with logging_to(configuration.server.log_format, *PACKAGES):
        devices = Devices(client, configuration) if configuration.hardware.claims else None
        server = ExtenderServer(
            configuration,
            config,
            nodes,
            writeback,
            bound=BoundPods(client),
            devices=devices,
            audit=audit,
        )
        uvloop.run(server.run())
