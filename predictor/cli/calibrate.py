"""`precision-time calibrate`: learns from a site's own runs, and tells what that is worth."""

from __future__ import annotations

from dataclasses import asdict, replace
from math import expm1
from typing import TYPE_CHECKING, Any

import click

from ..errors import HistoryError
from ..site.similar.request import Similarity
from ..units import MISSING, count, duration, percent
from .console import Progress, format_option, progress, show_json, show_table, warn
from .filling import filter_options, history_option, open_history, where_of
from .options import listed_options, predictor

if TYPE_CHECKING:
    from ..site.calibration.calibrate import CalibrationComparison, Gathered
    from ..site.calibration.site_state import SiteState
    from ..site.calibration.suggest import SuggestedRun
    from ..site.history.store import History
    from ..site.history.tables import Where

HEAD = ("", "runs", "mean before", "after", "median before", "after", "inside 95 % before", "after")
ALL = "all held-back runs"


@click.command()
@history_option
@listed_options("calibrate")
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
    from ..estimate import artifacts
    from ..site.calibration.calibrate import UNTIL, cut_at, gather
    from ..site.calibration.site_state import TEACHING_RUNS, SiteState, write_state

    where, current = where_of(filters), artifacts.current()
    # When the last run ended that taught the predictor in use.
    used = (m for m in artifacts.versions() if m.version == current)
    taught_s = next((m.figures.get(UNTIL, 0.0) for m in used), 0.0)
    with open_history(history, create=False) as store, progress("calibrating") as bar:
        bar("how long jobs run", 0.0)
        state = SiteState.learn(store.latest(TEACHING_RUNS, where))
        bar("runs of the site", 0.1)
        cut_s = cut_at(store, where, hold_back, taught_s)
        telling = store.runs(replace(where, only_telling=True))
        gathered = gather(telling, state.fixed, cut_s, store.count(where))
        if not dry_run:
            write_state(state)
        compared, stored = _calibrate(gathered, bar, force=force, dry_run=dry_run)
    told = _told(compared, gathered, state, stored)
    if form == "json":
        show_json(told)
    else:
        groups = None if compared is None else compared.groups.groups
        _show(told, None if groups is None else sum(one.runs for one in groups), force=force)


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
        like = one.like.ended
        click.echo(
            f"\n{percent(expm1(one.deviation))}  {job.model}, {job.precision.value}, "
            f"{job.micro_batch_size} a GPU; like job {like.job_id}: {like.submit_line or like.name}"
        )
        click.echo(f"     {_command(one)}")


def _command(one: SuggestedRun) -> str:
    """A line that submits it; it says nothing that would set a limit."""
    job = one.job
    each = f"{job.gpu}:{-(-job.gpus // job.nodes)}"
    return f"sbatch --nodes={job.nodes} --gpus-per-node={each} SCRIPT"


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
    better = compared.verdict.better
    used = better or force
    if used:
        fitted = fit_all(base, gathered, guards, bar)
        taught += gathered.later
    forced = {"promotion forced": float(used and not better)}
    version = store.store(fitted.predictor, compared.figures(taught) | forced).version
    if used:
        artifacts.use(version)
    return compared, version


def _told(
    compared: CalibrationComparison | None, gathered: Gathered, state: SiteState, stored: str | None
) -> dict[str, Any]:
    """What was learned, and what that is worth, as plain values."""
    from ..site.calibration.calibrate import Errors, by_stack

    seen = state.memory.seen()
    before, after = ((), ()) if compared is None else (compared.before, compared.after)
    checked = {"before": before, "after": after}
    whole = {name: Errors.of(runs) for name, runs in checked.items()}
    return {
        "runs": gathered.runs,
        "run_times": {
            "runs": seen.get((Similarity.SITE, ""), 0),
            "users": sum(kind is Similarity.USER for kind, _ in seen),
            "inside_95": state.memory.coverage.held,
        },
        "fixed_times": [asdict(fixed) for fixed in state.fixed],
        "hit_their_limit": len(gathered.bounds),
        "version": stored,
        "measurements": 0 if compared is None else len(compared.groups.groups),
        "not_used": dict((gathered if compared is None else compared).left.most_common()),
        "beyond_the_interval": 0 if compared is None else compared.beyond,
        **{name: None if errors is None else asdict(errors) for name, errors in whole.items()},
        "by_stack": {
            name: {where: asdict(errors) for where, errors in by_stack(runs).items()}
            for name, runs in checked.items()
        },
        "verdict": None if compared is None else asdict(compared.verdict),
        "caught": [] if compared is None else [asdict(caught) for caught in compared.caught],
        "better": compared is not None and compared.verdict.better,
    }


def _show(told: dict[str, Any], measured: int | None, *, force: bool) -> None:
    """The same as text; ``measured`` runs told a step time, None where nothing was fitted."""
    times, runs = told["run_times"], count(told["runs"])
    if not told["runs"]:
        click.echo("nothing to learn from: `precision-time history ingest` fills the history")
        return
    click.echo(
        f"how long jobs run: {count(times['runs'])} runs of {count(times['users'])} users; "
        f"of the latest {percent(times['inside_95'])} stayed below their 95 % quantile"
    )
    for fixed in told["fixed_times"]:
        if startup := fixed["startup_s"]:
            click.echo(
                f"start-up {fixed['cluster']}: median {duration(startup['median'])}, 90 % below "
                f"{duration(startup['high'])} ({startup['runs']} runs)"
            )
    made = "none tells a step time, no predictor was fitted"
    if measured is not None:
        made = f"{count(measured)} make {count(told['measurements'])} measurements"
    click.echo(f"{runs} runs: {made}")
    if told["not_used"]:
        reasons = ", ".join(f"{number} {why}" for why, number in told["not_used"].items())
        click.echo(f"not used for step times: {reasons}")
    if measured is None:
        return
    if bounds := told["hit_their_limit"]:
        beyond = told["beyond_the_interval"]
        click.echo(f"{bounds} hit their limit, {beyond} of them beyond the interval")
    click.echo()
    before, after = told["by_stack"]["before"], told["by_stack"]["after"]
    rows = [_row(name, before.get(name), after[name]) for name in after]
    show_table(HEAD, [_row(ALL, told["before"], told["after"]), *rows])
    use = "is in use" if told["better"] or force else "is stored, and not used"
    version = told["version"]
    click.echo("\nnothing stored (--dry-run)" if version is None else f"\n{version} {use}")
    click.echo(f"{'better' if told['better'] else 'not better'}: {told['verdict']['reason']}")
    for caught in told["caught"]:
        warn(
            f"nothing is learned from {caught['user']}: {caught['lies']} of {caught['runs']} runs "
            f"cannot be true, most of them {caught['reason']}"
        )


def _row(
    name: str, before: dict[str, float] | None, after: dict[str, float] | None
) -> tuple[str, ...]:
    runs = MISSING if after is None else count(int(after["runs"]))
    figures = [
        percent(None if errors is None else errors[what])
        for what in ("mean", "median", "coverage")
        for errors in (before, after)
    ]
    return (name, runs, *figures)
