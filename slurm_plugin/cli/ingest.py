"""`precision-time history ingest slurm`: ended jobs of accounting into the history."""

from __future__ import annotations

import time
from pathlib import Path

import click

from predictor.cli.console import format_option
from predictor.cli.filling import filled, follow, history_option, open_history, show
from predictor.cli.options import listed_options
from predictor.site.history.ingest import period
from predictor.site.history.store import History
from predictor.units import HOUR_S

from ..config import policy_at
from ..history.ingest import SlurmFollower, cursor_of, records
from ..sources.commands import Commands
from ..sources.text import SlurmSource
from . import config_option

EVERY_S = 60.0


@click.command()
@listed_options("ingest-slurm")
@config_option
@history_option
@format_option
def slurm(
    since: float | None,
    until: float | None,
    overlap: float,
    goes_on: bool,
    config: Path | None,
    history: str | None,
    form: str,
) -> None:
    """Add the GPU jobs that ended, as sacct tells them, to the history.

    Run it as SlurmUser, root or an operator: others may not see all jobs. Runs that were requeued
    are a record each; what is running is left for the next time.
    """
    policy = policy_at(config)

    def opened() -> History:
        settings = policy.history if policy.history.model_fields_set else None
        return open_history(history, settings)

    if goes_on and until is not None:
        raise click.UsageError("--until and --follow cannot be given together")
    if goes_on:
        follower = SlurmFollower(opened, since_s=since, overlap_s=overlap * HOUR_S)
        text = "what is missing is read again when it is over"
        follow(lambda: follower.look(policy_at(config)), EVERY_S, text)
        return
    name = cursor_of(SlurmSource(Commands.of(policy.slurm)).settings().cluster_name)
    with opened() as store:
        read = period(
            store.cursor(name), until or time.time(), since_s=since, overlap_s=overlap * HOUR_S
        )
        length_s = max(1.0, read.until_s - read.since_s)
        tally = filled(
            store,
            records(policy, read.since_s, read.until_s),
            lambda tally: ((tally.at_s or read.since_s) - read.since_s) / length_s,
            cursor=name,
            since_s=read.since_s,
        )
        show(tally, store.url, form)
