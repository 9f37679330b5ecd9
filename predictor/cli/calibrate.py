"""`precision-time calibrate`: learns from a site's own runs, and tells what that is worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from math import expm1
from typing import TYPE_CHECKING, Any

import click

from ..errors import HistoryError
from ..units import MISSING, count, duration, percent
from .console import Progress, format_option, progress, show_json, show_table, warn
from .filling import history_option, open_history
from .history_filters import filter_options, where_of
from .predictors import predictor

if TYPE_CHECKING:
    from ..site.calibration.calibrate import CalibrationComparison, Gathered
    from ..site.calibration.held_back import Checked, Errors
    from ..site.calibration.site_state import SiteState
    from ..site.calibration.suggest import SuggestedRun
    from ..site.history.store import History
    from ..site.history.tables import Where

HEAD = ("", "runs", "mean before", "after", "median before", "after", "inside 95 % before", "after")
ALL = "all held-back runs"


@click.command()
@history_option
@click.option(
    "--hold-back",
    type=click.FloatRange(0.05, 0.5),
    default=0.2,
    show_default=True,
    help="Share of the runs, the latest, that check what the others taught.",
)
@click.option(
    "--force", is_flag=True, help="Use the new predictor whatever the held-back runs say."
)
@click.option("--dry-run", is_flag=True, help="Store nothing.")
@click.option(
    "--suggest",
    type=click.IntRange(1),
    metavar="N",
    help="Only name the N runs that would narrow the predictions of this site's jobs most.",
)
@filter_options
@format_option
def calibrate(
    history: str | None,
    hold_back: float,
    force: bool,
    dry_run: bool,
    suggest: int | None,
    form: str,
    **filters: Any,
) -> None:
    """Fit to the shipped measurements and the runs of the history.

    Shows the error on the latest runs, which taught nothing, before and after; stores the new
    predictor, and puts it to use where it is better on them beyond doubt. Start-up, pauses and
    what is needed to estimate any job go to site.json beside the predictors, where the daemons
    read them; of a history whose jobs name no network that is all.
    """
    if suggest is not None:
        with open_history(history, create=False) as store:
            _suggest(store, where_of(filters), suggest, form)
        return
    from ..site.calibration.site_state import write_state

    with open_history(history, create=False) as store, progress("calibrating") as bar:
        state, gathered = _read(store, where_of(filters), hold_back, bar)
        if not dry_run:
            write_state(state)
        compared, stored = _calibrate(gathered, bar, force=force, dry_run=dry_run)
    if form == "json":
        show_json(_plain(compared, gathered, state, stored))
    else:
        _show(compared, gathered, state, stored, force=force)


def _suggest(store: History, where: Where, count_: int, form: str) -> None:
    """Runs worth making, each as a job to submit with a script of the site."""
    from ..site.calibration.suggest import suggest

    found = suggest(predictor(), store.runs(where), count_)
    if form == "json":
        show_json(
            {
                "jobs": found.jobs,
                "deviation": found.deviation,
                "runs": [
                    {
                        "deviation": one.deviation,
                        "model": one.job.model,
                        "precision": one.job.precision.value,
                        "batch_size": one.job.micro_batch_size,
                        "like_job": one.like.ended.job_id,
                        "command": _command(one),
                    }
                    for one in found.runs
                ],
            }
        )
        return
    if not found.runs:
        click.echo("no run of the history names its network")
        return
    click.echo(
        f"{count(found.jobs)} configurations; their predictions deviate by "
        f"{percent(expm1(found.deviation))} today. 100 steps of each, most telling first, with the "
        "step time reported (docs/how-to/callbacks.md), lead to:"
    )
    for one in found.runs:
        job = one.job
        click.echo(
            f"\n{percent(expm1(one.deviation))}  {job.model}, {job.precision.value}, "
            f"{job.micro_batch_size} a GPU; like job {one.like.ended.job_id}: "
            f"{one.like.ended.submit_line or one.like.ended.name}"
        )
        click.echo(f"     {_command(one)}")


def _command(one: SuggestedRun) -> str:
    """A line that submits it; it says nothing that would set a limit."""
    job = one.job
    return (
        f"sbatch --nodes={job.nodes} --gpus-per-node={job.gpu}:{-(-job.gpus // job.nodes)} SCRIPT"
    )


def _read(
    store: History, where: Where, hold_back: float, bar: Progress
) -> tuple[SiteState, Gathered]:
    from ..site.calibration.calibrate import cut_at, gather
    from ..site.calibration.site_state import SiteState

    bar("how long jobs run", 0.0)
    state = SiteState.learn(store.runs(where))
    bar("runs of the site", 0.1)
    cut_s = cut_at(store, where, hold_back, _taught_s())
    return state, gather(store.runs(where), state.fixed, cut_s)


def _taught_s() -> float:
    """When the last run ended that taught the predictor in use; 0 for none."""
    from ..estimate import artifacts
    from ..site.calibration.calibrate import UNTIL

    current = artifacts.current()
    used = (m for m in artifacts.versions() if m.version == current)
    return next((m.figures.get(UNTIL, 0.0) for m in used), 0.0)


def _calibrate(
    gathered: Gathered, bar: Progress, *, force: bool, dry_run: bool
) -> tuple[CalibrationComparison | None, str | None]:
    """The comparison, and the version that was stored; None where no run tells a step time."""
    from ..estimate import artifacts, store
    from ..site.calibration.calibrate import Base, compare, fit_all
    from ..site.calibration.guards import Guards, read_quarantine

    if not gathered.earlier:
        return None, None
    before = predictor()
    guards = Guards(before, read_quarantine())
    base = Base.of(progress=bar)
    try:
        compared = compare(before, base, gathered, guards=guards, progress=bar)
    except HistoryError as error:
        warn(str(error))
        return None, None
    if dry_run:
        return compared, None
    fitted, taught = compared.fitted, gathered.earlier
    used = compared.better or force
    if used:
        fitted = fit_all(base, gathered, guards=guards, progress=bar)
        taught += gathered.later
    forced = {"promotion forced": float(used and not compared.better)}
    version = store.store(fitted.predictor, compared.figures(taught) | forced).version
    if used:
        artifacts.use(version)
    return compared, version


def _show(
    compared: CalibrationComparison | None,
    gathered: Gathered,
    state: SiteState,
    stored: str | None,
    *,
    force: bool,
) -> None:
    for line in _run_time_lines(state):
        click.echo(line)
    if compared is None:
        click.echo(f"{count(gathered.runs)} runs: none tells a step time, no predictor was fitted")
        _show_unused(gathered.left)
        return
    groups = compared.groups.groups
    used = sum(group.runs for group in groups)
    click.echo(f"{count(gathered.runs)} runs: {count(used)} make {count(len(groups))} measurements")
    _show_unused(compared.left)
    if bounds := len(gathered.bounds):
        click.echo(f"{bounds} hit their limit, {compared.beyond} of them beyond the interval")
    click.echo()
    show_table(HEAD, list(_rows(compared)))
    verdict = compared.verdict
    click.echo(_stored(stored, used=verdict.better or force))
    click.echo(f"{'better' if verdict.better else 'not better'}: {verdict.reason}")
    for caught in compared.caught:
        warn(
            f"nothing is learned from {caught.user}: {caught.lies} of {caught.runs} runs cannot be "
            f"true, most of them {caught.reason}"
        )


def _run_time_lines(state: SiteState) -> Iterator[str]:
    """What was learned of how long jobs run."""
    told = _run_times(state)
    yield (
        f"how long jobs run: {count(told['runs'])} runs of {count(told['users'])} users; "
        f"of the latest {percent(told['inside_95'])} stayed below their 95 % quantile"
    )
    for fixed in state.fixed:
        if fixed.startup_s is not None:
            startup = fixed.startup_s
            yield (
                f"start-up {fixed.cluster}: median {duration(startup.median)}, 90 % below "
                f"{duration(startup.high)} ({startup.runs} runs)"
            )


def _run_times(state: SiteState) -> dict[str, Any]:
    from ..site.similar.request import Similarity

    seen = state.memory.seen()
    return {
        "runs": seen.get((Similarity.SITE, ""), 0),
        "users": sum(kind is Similarity.USER for kind, _ in seen),
        "inside_95": state.memory.coverage.held,
    }


def _show_unused(left: Counter[str]) -> None:
    from ..site.calibration.calibrate import reasons

    if left:
        click.echo(f"not used for step times: {reasons(left)}")


def _stored(version: str | None, *, used: bool) -> str:
    if version is None:
        return "\nnothing stored (--dry-run)"
    return f"\n{version} {'is in use' if used else 'is stored, and not used'}"


def _rows(compared: CalibrationComparison) -> list[tuple[str, ...]]:
    from ..site.calibration.held_back import errors_by, stack

    before, after = errors_by(compared.before, stack), errors_by(compared.after, stack)
    rows = [_row(ALL, *_both(compared))]
    return rows + [_row(name, before.get(name), after.get(name)) for name in after]


def _both(compared: CalibrationComparison) -> tuple[Errors | None, Errors | None]:
    from ..site.calibration.held_back import Errors

    return Errors.of(compared.before), Errors.of(compared.after)


def _row(name: str, before: Errors | None, after: Errors | None) -> tuple[str, ...]:
    runs = MISSING if after is None else count(after.runs)
    figures = [
        percent(None if errors is None else getattr(errors, what))
        for what in ("mean", "median", "coverage")
        for errors in (before, after)
    ]
    return (name, runs, *figures)


def _plain(
    compared: CalibrationComparison | None, gathered: Gathered, state: SiteState, stored: str | None
) -> dict[str, Any]:
    told = {
        "runs": gathered.runs,
        "run_times": _run_times(state),
        "fixed_times": [asdict(fixed) for fixed in state.fixed],
        "hit_their_limit": len(gathered.bounds),
        "version": stored,
    }
    return told | (_nothing_compared(gathered) if compared is None else _compared(compared))


def _nothing_compared(gathered: Gathered) -> dict[str, Any]:
    nothing = dict.fromkeys(("before", "after", "verdict"))
    return {
        "measurements": 0,
        "not_used": dict(gathered.left.most_common()),
        "beyond_the_interval": 0,
        "by_stack": {"before": {}, "after": {}},
        "caught": [],
        "better": False,
    } | nothing


def _compared(compared: CalibrationComparison) -> dict[str, Any]:
    from ..site.calibration.held_back import errors_by, stack

    def plain(checked: Sequence[Checked]) -> dict[str, Any]:
        return {name: asdict(errors) for name, errors in errors_by(checked, stack).items()}

    before, after = _both(compared)
    return {
        "measurements": len(compared.groups.groups),
        "not_used": dict(compared.left.most_common()),
        "beyond_the_interval": compared.beyond,
        "before": None if before is None else asdict(before),
        "after": None if after is None else asdict(after),
        "by_stack": {"before": plain(compared.before), "after": plain(compared.after)},
        "verdict": asdict(compared.verdict),
        "caught": [asdict(caught) for caught in compared.caught],
        "better": compared.better,
    }
