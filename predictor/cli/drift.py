"""`precision-time drift`: whether predictions are still right, and since when they are not."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import datetime
from math import copysign
from typing import TYPE_CHECKING, Any

import click

from ..units import MISSING, count, percent
from .console import format_option, progress, show_json, show_rows, warn
from .filling import history_option, open_history
from .history_filters import filter_options, where_of

if TYPE_CHECKING:
    from ..estimate.core import Predictor
    from ..site.calibration.run_reader import RunReader
    from ..site.drift.chart import Change
    from ..site.drift.observed import AtSubmit, InUse
    from ..site.drift.snapshot import StreamState
    from ..site.drift.watch import Drift, DriftFigures, WatchedStream
    from ..site.history.store import History
    from ..site.history.where import Where

FOUND = 1


@click.command()
@history_option
@click.option(
    "--false-alarms",
    type=click.FloatRange(0.001, 1000),
    default=1.0,
    show_default=True,
    help="False alarms a year on the whole site, all streams together.",
)
@click.option(
    "--runs-per-week",
    type=click.FloatRange(0, min_open=True),
    help="Runs with enough earlier ones like them.  [default: as the history has]",
)
@click.option(
    "--repredict",
    is_flag=True,
    help="Judge the predictor in use on all runs instead of what was said at submit.",
)
@click.option("--weekly", is_flag=True, help="Show every week of every stream.")
@click.option("--snapshot", is_flag=True, help="Write drift.json, which the daemons' metrics show.")
@click.option("--fail-on-alarm", is_flag=True, help="Exit with 1 where a change stands.")
@filter_options
@format_option
@click.pass_context
def drift(
    ctx: click.Context,
    /,
    history: str | None,
    false_alarms: float,
    runs_per_week: float | None,
    repredict: bool,
    weekly: bool,
    snapshot: bool,
    fail_on_alarm: bool,
    form: str,
    **filters: Any,
) -> None:
    """Tell whether the cluster is still as it was predicted.

    For each stack, GPU and model: the median share by which runs took longer than predicted, how
    many were inside the 95 % interval, and the date since which they take longer or shorter than
    before. That alarm compares each run with earlier ones of the same user and configuration; how
    often it is false is chosen. A change stands until a predictor made after it predicts.
    """
    with open_history(history, create=False) as store, progress("watching") as bar:
        bar("runs", 0.1)
        found = _watch(store, where_of(filters), false_alarms, runs_per_week, repredict=repredict)
    if snapshot:
        _write(found)
    if form == "json":
        show_json(_plain(found))
    else:
        _show(found, weekly=weekly)
    if fail_on_alarm and any(found.alarms):
        ctx.exit(FOUND)


def _watch(
    store: History,
    where: Where,
    false_alarms: float,
    runs_per_week: float | None,
    *,
    repredict: bool,
) -> Drift:
    from collections import Counter

    from ..site.drift.observed import observations
    from ..site.drift.watch import watch

    left: Counter[str] = Counter()
    said = _in_use() if repredict else _at_submit()
    observed = observations(store.runs(where), _candidates(), said, left)
    return watch(observed, left, false_alarms_per_year=false_alarms, runs_per_week=runs_per_week)


def _candidates() -> RunReader:
    """Made with the start-up times that were last learned."""
    from ..site.calibration.run_reader import RunReader
    from ..site.calibration.site_state import read_state

    return RunReader(read_state().fixed)


def _in_use() -> InUse:
    from ..estimate import artifacts
    from ..site.drift.observed import InUse
    from .predictors import predictor

    return InUse(predictor(), artifacts.current())


def _at_submit() -> AtSubmit:
    from ..site.drift.observed import AtSubmit

    return AtSubmit(_stored)


def _stored(version: str) -> Predictor | None:
    from ..errors import ArtifactError
    from ..estimate.store import load_predictor

    try:
        return load_predictor(version)
    except ArtifactError as error:
        warn(f"coverage of the predictions by {version} is not told: {error}")
        return None


def _write(found: Drift) -> None:
    from ..site.drift.snapshot import write_snapshot

    write_snapshot(map(_state, found.streams), time.time())


def _state(watched: WatchedStream) -> StreamState:
    from ..site.drift.snapshot import StreamState

    stream, figures, change = watched.stream, watched.figures, watched.standing
    return StreamState(
        cluster=stream.cluster,
        framework=stream.framework,
        gpu=stream.gpu,
        model=stream.model or "",
        runs=watched.measured,
        bias=figures.bias,
        coverage=figures.coverage,
        alarm=0 if change is None else int(copysign(1, change.shift)),
        shift=0.0 if change is None else change.shift,
    )


def _show(found: Drift, *, weekly: bool) -> None:
    if not found.streams:
        warn("no run tells a step time: " + (_reasons(found) or "the history is empty"))
    if weekly:
        show_rows([row for w in found.streams for row in _weeks(w)], left=5)
    else:
        show_rows([_row(watched) for watched in found.streams], left=4)
    click.echo()
    for watched in found.alarms:
        assert watched.standing is not None
        click.echo(_told(watched.standing, watched.stream.where))
    if not any(found.alarms):
        click.echo("no change")
    click.echo(
        f"false alarms: {found.false_alarms_per_year:g} a year, "
        f"at {count(found.scores_per_year / 2)} runs compared a year"
    )
    if found.left:
        click.echo(f"not used: {_reasons(found)}")


def _told(change: Change, where: str) -> str:
    since = datetime.fromtimestamp(change.since_s)
    slower = "slower" if change.shift > 0 else "faster"
    users = f"{change.users} user" + "s" * (change.users != 1)
    kinds = f"{change.configurations} configuration" + "s" * (change.configurations != 1)
    return (
        f"{100 * change.shift:+.1f} % {slower} since {since:%Y-%m-%d} on {where} "
        f"({change.runs} runs of {users} in {kinds})"
    )


def _reasons(found: Drift) -> str:
    return ", ".join(f"{number} {why}" for why, number in found.left.most_common())


def _names(watched: WatchedStream) -> dict[str, str]:
    stream = watched.stream
    return {
        "cluster": stream.cluster or MISSING,
        "GPU": stream.gpu,
        "stack": stream.framework,
        "model": stream.model or "all",
    }


def _figures(figures: DriftFigures) -> dict[str, str]:
    low, high = figures.coverage_low, figures.coverage_high
    return {
        "predicted": count(figures.runs),
        "bias": MISSING if figures.bias is None else f"{100 * figures.bias:+.1f} %",
        "inside 95 %": percent(figures.coverage),
        "its 95 %": MISSING if low is None else f"{percent(low)} .. {percent(high)}",
    }


def _row(watched: WatchedStream) -> dict[str, str]:
    counts = {"measured": count(watched.measured), "compared": count(watched.scored)}
    return _names(watched) | counts | _figures(watched.figures)


def _weeks(watched: WatchedStream) -> list[dict[str, str]]:
    names = _names(watched)
    return [{"week": w.monday} | names | _figures(w.figures) for w in watched.weeks]


def _plain(found: Drift) -> dict[str, Any]:
    return {
        "false_alarms_per_year": found.false_alarms_per_year,
        "runs_compared_per_year": found.scores_per_year / 2,
        "limit": found.limit,
        "alarms": [{**asdict(w.stream), **asdict(w.standing)} for w in found.alarms if w.standing],
        "streams": [asdict(watched) for watched in found.streams],
        "not_used": dict(found.left.most_common()),
    }
