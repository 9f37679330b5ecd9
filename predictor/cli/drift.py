"""`precision-time drift`: whether predictions are still right, and since when they are not."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict
from datetime import datetime
from math import copysign
from typing import TYPE_CHECKING, Any

import click

from ..site.drift.snapshot import StreamState, write_snapshot
from ..units import MISSING, count, percent
from .console import format_option, progress, show_json, show_rows, warn
from .filling import filter_options, history_option, open_history, where_of
from .options import listed_options

if TYPE_CHECKING:
    from ..site.drift.watch import Change, Drift, WatchedStream

FOUND = 1


@click.command()
@history_option
@listed_options("drift")
@filter_options
@format_option
@click.pass_context
def drift(
    ctx: click.Context,
    /,
    history: str | None,
    false_alarms: float,
    snapshot: bool,
    fail_on_alarm: bool,
    form: str,
    **filters: Any,
) -> None:
    """Tell whether the cluster is still as it was predicted.

    For each stack, GPU and model: the median share by which runs took longer than predicted, how
    many stayed below their told 95 % quantile, and the date since which they take longer or shorter
    than before. That alarm compares each run with earlier ones of the same user and configuration;
    how often it is false is chosen. A change stands until a predictor made after it predicts.
    """
    from ..site.calibration.run_reader import RunReader
    from ..site.calibration.site_state import read_state
    from ..site.drift.watch import observations, watch

    with open_history(history, create=False) as store, progress("watching") as bar:
        bar("runs", 0.1)
        left: Counter[str] = Counter()
        reader = RunReader(read_state().fixed)  # with the start-up times that were last learned
        observed = observations(store.runs(where_of(filters)), reader, left)
        found = watch(observed, left, false_alarms_per_year=false_alarms)
    if snapshot:
        _write(found)
    if form == "json":
        show_json(_plain(found))
    else:
        _show(found)
    if fail_on_alarm and any(found.alarms):
        ctx.exit(FOUND)


def _write(found: Drift) -> None:
    streams = []
    for watched in found.streams:
        stream, figures, change = watched.stream, watched.figures, watched.standing
        state = StreamState(
            **asdict(stream) | {"model": stream.model or ""},
            runs=watched.measured,
            bias=figures.bias,
            coverage=figures.coverage,
            alarm=0 if change is None else int(copysign(1, change.shift)),
            shift=0.0 if change is None else change.shift,
        )
        streams.append(state)
    write_snapshot(streams, time.time())


def _show(found: Drift) -> None:
    if not found.streams:
        warn("no run tells a step time: " + (_reasons(found) or "the history is empty"))
    show_rows([_row(watched) for watched in found.streams], left=4)
    click.echo()
    for watched in found.alarms:
        if watched.standing is not None:
            click.echo(_told(watched.standing, watched.stream.where))
    if not any(found.alarms):
        click.echo("no change" if found.scores_per_year else "nothing to compare yet")
    false, runs = found.false_alarms_per_year, count(found.scores_per_year / 2)
    click.echo(f"false alarms: {false:g} a year, at {runs} runs compared a year")
    if found.left:
        click.echo(f"not used: {_reasons(found)}")


def _told(change: Change, where: str) -> str:
    since = f"since {datetime.fromtimestamp(change.since_s):%Y-%m-%d} on {where}"
    shift = f"{100 * change.shift:+.1f} % {'slower' if change.shift > 0 else 'faster'}"
    users = f"{change.users} user{'s' * (change.users != 1)}"
    kinds = f"{change.configurations} configuration{'s' * (change.configurations != 1)}"
    return f"{shift} {since} ({change.runs} runs of {users} in {kinds})"


def _reasons(found: Drift) -> str:
    return ", ".join(f"{number} {why}" for why, number in found.left.most_common())


def _row(watched: WatchedStream) -> dict[str, str]:
    stream, figures = watched.stream, watched.figures
    return {
        "cluster": stream.cluster or MISSING,
        "GPU": stream.gpu,
        "stack": stream.framework,
        "model": stream.model or "all",
        "measured": count(watched.measured),
        "compared": count(watched.scored),
        "predicted": count(figures.runs),
        "bias": MISSING if figures.bias is None else f"{100 * figures.bias:+.1f} %",
        "below 95 %": percent(figures.coverage),
    }


def _plain(found: Drift) -> dict[str, Any]:
    return {
        "false_alarms_per_year": found.false_alarms_per_year,
        "runs_compared_per_year": found.scores_per_year / 2,
        "limit": found.limit,
        "alarms": [{**asdict(w.stream), **asdict(w.standing)} for w in found.alarms if w.standing],
        "streams": [asdict(watched) for watched in found.streams],
        "not_used": dict(found.left.most_common()),
    }
