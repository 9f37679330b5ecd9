"""`precision-time history ingest kubernetes`: ended Jobs and pods into the history."""

from __future__ import annotations

from pathlib import Path

import click

from predictor.cli import filling
from predictor.cli.console import format_option
from predictor.cli.filling import filled, history_option, open_history, show
from predictor.cli.options import moment

from ..config import read_config
from . import api_client, config_option, kubeconfig_option

EVERY_S = 5.0


@click.command()
@click.option("--since", type=moment, help="Runs that ended since then  [default: all there are]")
@click.option(
    "--follow", is_flag=True, help="Watch the cluster, and add runs as they end, until SIGTERM."
)
@click.option("--heartbeat", type=click.Path(path_type=Path), help="File to touch at every look.")
@config_option
@kubeconfig_option
@history_option
@format_option
def kubernetes(
    since: float | None,
    follow: bool,
    heartbeat: Path | None,
    config: Path | None,
    kubeconfig: str,
    history: str | None,
    form: str,
) -> None:
    """Add the Jobs and pods with GPUs that ended to the history.

    The API server forgets what a TTL or a person deletes: only --follow sees that, and sees which
    GPU a node had that is gone by now. Needs the verbs list and watch on nodes, pods and Jobs.
    """
    from ..history.runs import ClusterFollower, records

    settings = read_config(config)
    stored = settings.history if settings.history.model_fields_set else None
    client = api_client(kubeconfig)
    if follow:
        if since is not None:
            raise click.UsageError("--since and --follow cannot be given together")
        follower = ClusterFollower(client, settings, lambda: open_history(history, stored))
        follower.start()
        filling.follow(follower.store, EVERY_S, "runs wait until it is over", heartbeat)
        follower.store()
        follower.stop()
        return
    with open_history(history, stored) as store:
        found = records(client, settings, since or 0.0)
        show(filled(store, found, lambda _: 0.0), store.url, form)
