"""`precision-time capacity`: where GPU-hours went, what waits, what a change would buy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import HistoryError, NotInstalledError, TraceError
from ..units import count, duration, percent, short
from .capacity_source import Asked, capacity_options, opened
from .console import show_json, show_table, warn
from .past_jobs import pools_of
from .predictors import predictor

if TYPE_CHECKING:
    from ..capacity.report_data import Range, Report, Scenario, WhatIf
    from ..replay import Pool

EXTRA = ("jinja2", "polars", "pydantic", "sqlalchemy", "statsmodels", "alembic")
PRECISIONS = ("mixed",)
SHOWN_ROWS = 10


class CapacityGroup(click.Group):
    """Raises NotInstalledError where a command misses what the extra ``report`` brings."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if error.name not in EXTRA:
                raise
            raise NotInstalledError(f"{error}: pip install 'precision-time[report]'") from error


def plan_options(command: Any) -> Any:
    """Adds ``--add``, ``--remove`` and ``--to-precision``."""
    for option in (
        click.option(
            "--to-precision", type=click.Choice(PRECISIONS),
            help="Send jobs of fp32 and tf32 in mixed precision.",
        ),
        click.option(
            "--remove", multiple=True, callback=pools_of, metavar="TYPE:GPUS",
            help="GPUs to take away; their jobs may run on every type they fit. Repeatable.",
        ),
        click.option(
            "--add", multiple=True, callback=pools_of, metavar="TYPE:GPUS[/PER_NODE]",
            help="GPUs to add; jobs may run on a type that was not there before. Repeatable.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


@click.group(cls=CapacityGroup)
def capacity() -> None:
    """Report where GPU-hours went, what the queue still needs and what a change would buy."""


@capacity.command()
@capacity_options
@plan_options
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Write the report as one page (.html) or for mail (.md).",
)  # fmt: skip
@click.option(
    "--csv", "csv_dir", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    help="Write every table as CSV.",
)  # fmt: skip
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Write everything as JSON.",
)  # fmt: skip
@click.option("--facts-only", is_flag=True, help="Predict nothing: facts and forecast alone.")
def report(
    form: str,
    add: tuple[Pool, ...],
    remove: tuple[Pool, ...],
    to_precision: str | None,
    output: Path | None,
    csv_dir: Path | None,
    json_file: Path | None,
    facts_only: bool,
    **asked: Any,
) -> None:
    """Report on a period: hours, waits, limits, opportunities, backlog and forecast.

    With --add, --remove or --to-precision also what that change would have done.
    """
    from ..capacity.report import Wanted, make_report
    from ..capacity.whatif import Plan

    want = Asked(**asked)
    changes = bool(add or remove or to_precision)
    plan = Plan(add=add, remove=remove, mixed=to_precision is not None) if changes else None
    if plan is not None and facts_only:
        raise TraceError("--facts-only predicts nothing, and a change needs predictions")
    with opened(want) as source:
        found = make_report(
            source, want.period, None if facts_only else predictor(want.version),
            Wanted(pools=want.pools, terms=want.terms, plan=plan,
                   most_configurations=want.configurations),
        )  # fmt: skip
    for path in _written(found, output, csv_dir, json_file):
        click.echo(f"wrote {path}", err=True)
    if form == "json":
        show_json(found.as_dict())
    else:
        _show(found)


@capacity.command()
@capacity_options
@plan_options
def whatif(
    form: str,
    add: tuple[Pool, ...],
    remove: tuple[Pool, ...],
    to_precision: str | None,
    **asked: Any,
) -> None:
    """Replay a period with other GPUs or in another precision.

    The period is replayed twice, as it was and changed: compare the two with each other. How far
    the first is from what was really waited tells how far to trust them. Jobs that do not say what
    they are keep their time and their GPU type.
    """
    from dataclasses import asdict

    from ..capacity.clusters import pools_of as pools_in
    from ..capacity.configurations import Outlook
    from ..capacity.jobs import jobs_of
    from ..capacity.whatif import Plan, what_if

    want = Asked(**asked)
    if not (add or remove or to_precision):
        raise TraceError("nothing would change: give --add, --remove or --to-precision")
    with opened(want) as source:
        jobs = jobs_of(source.frame, want.period)
    found = what_if(
        jobs, Plan(add=add, remove=remove, mixed=to_precision is not None),
        Outlook(predictor(want.version)), want.terms, pools_in(jobs.table, want.pools),
        most=want.configurations,
    )  # fmt: skip
    if form == "json":
        show_json(asdict(found))
    else:
        _show_whatif(found, want.terms.tariff.currency)


@capacity.command()
@capacity_options
def queue(form: str, **asked: Any) -> None:
    """Show when each waiting job starts and ends, by GPU type.

    The queue is that of --until, of a file of jobs (waiting ones have no start, running ones no
    end) or of a history. It is replayed many times with run times drawn from the predictions.
    """
    from dataclasses import asdict

    from ..capacity.backlog import cleared
    from ..capacity.clusters import pools_of as pools_in
    from ..capacity.configurations import Outlook
    from ..capacity.jobs import jobs_of
    from ..capacity.waiting import queue_at

    want = Asked(**asked)
    with opened(want) as source:
        period = want.period
        pools = pools_in(jobs_of(source.frame, period).table, want.pools)
        waiting = queue_at(source.frame, period.until_s)
    found = cleared(waiting, pools, Outlook(predictor(want.version)))
    for aside in found.set_aside:
        warn(f"{count(aside.jobs)} jobs left out, such as {aside.example}: {aside.reason}")
    if form == "json":
        show_json({"at_s": waiting.at_s} | asdict(found))
        return
    show_table(
        ("GPU type", "waiting", "GPU-hours (95 %)", "not known", "their GPU-h at most", "drained"),
        [(b.gpu_type, count(b.jobs), _span(b.gpu_hours), count(b.unknown_jobs),
          count(b.unknown_gpu_hours), _times(b.drain_s)) for b in found.backlog],
    )  # fmt: skip
    click.echo()
    show_table(
        ("job", "name", "user", "GPU type", "GPUs", "starts in", "ends in"),
        [(j.job_id, j.name, j.user, j.gpu_type, str(j.gpus), _times(j.starts_s), _times(j.ends_s))
         for j in found.queue],
        left=4,
    )  # fmt: skip


def _written(
    found: Report, output: Path | None, csv_dir: Path | None, json_file: Path | None
) -> list[Path]:
    try:
        if output is not None:
            output.write_text(_page(found, output), encoding="utf-8")
        if csv_dir is not None:
            from ..capacity.render import write_csvs

            csv_dir.mkdir(parents=True, exist_ok=True)
            write_csvs(found, csv_dir)
        if json_file is not None:
            json_file.write_text(json.dumps(found.as_dict(), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise HistoryError(f"{error.filename} cannot be written: {error.strerror}") from error
    return [path for path in (output, csv_dir, json_file) if path is not None]


def _page(found: Report, output: Path) -> str:
    from ..capacity.render import render_html, render_markdown

    if output.suffix == ".html":
        return render_html(found)
    if output.suffix == ".md":
        return render_markdown(found)
    raise HistoryError(f"output={str(output)!r} is not possible: .html and .md are accepted")


def _show(found: Report) -> None:
    hours, origin = found.hours, found.origin
    sample = ", a generated sample" if origin.sample else ""
    click.echo(
        f"{count(origin.jobs)} jobs of {origin.name}{sample}, {found.period.hours / 24:.3g} days"
    )
    for aside in origin.set_aside:
        click.echo(f"  left out, {aside.reason}: {count(aside.jobs)}, such as {aside.example}")
    for note in found.notes:
        click.echo(f"  {note}")
    click.echo()
    lines = {
        "allocated": hours.allocated, "completed": hours.completed, "running": hours.running,
        "cancelled": hours.cancelled, "failed": hours.failed, "timed out": hours.timed_out,
        "preempted": hours.preempted, "idle": found.idle,
    }  # fmt: skip
    whole = found.capacity or hours.allocated
    show_table(
        ("GPU-hours", "", "share"),
        [(name, count(value), percent(None if value is None or not whole else value / whole))
         for name, value in lines.items()],
    )  # fmt: skip
    click.echo()
    show_table(
        ("wait by GPUs", "jobs", "median", "95 %"),
        [(w.size, count(w.jobs), _time(w.median_s), _time(w.p95_s)) for w in found.waits],
    )
    if found.opportunities:
        click.echo()
        show_table(
            ("opportunity", "jobs", "GPU-hours", "saved (95 %)"),
            [(f"{o.kind.value}: {o.what}", count(o.jobs), count(o.gpu_hours),
              _span(o.saved_gpu_hours)) for o in found.opportunities[:SHOWN_ROWS]],
        )  # fmt: skip
    if found.whatif is not None:
        click.echo()
        _show_whatif(found.whatif, found.currency or "")


def _show_whatif(found: WhatIf, currency: str) -> None:
    before, after = found.baseline, found.changed
    rows = [
        (name, *(_cell(value, one, currency) for one in (before, after)))
        for name, value in _FIGURES.items()
    ]
    show_table(("replayed", "as it was", found.change), rows)
    total = before.jobs + before.never_started
    click.echo(
        f"\nreally waited on average: {duration(found.history_mean_wait_s)}; "
        f"{percent(found.unmoved_jobs / total)} of the jobs could not be predicted and stay as "
        "they were"
    )


_FIGURES = {
    "jobs": "jobs", "jobs with nowhere to run": "never_started", "mean wait": "mean_wait_s",
    "median wait": "median_wait_s", "95 % wait": "p95_wait_s", "in use": "utilisation",
    "GPU-hours": "gpu_hours", "energy (estimate)": "kwh", "cost": "cost",
}  # fmt: skip


def _cell(name: str, one: Scenario, currency: str) -> str:
    value = getattr(one, name)
    if value is None:
        return "-"
    if name.endswith("_s"):
        return _time(value)
    if name == "utilisation":
        return percent(value)
    unit = {"kwh": " kWh", "cost": f" {currency}"}.get(name, "")
    return count(value) + unit


def _span(found: Range) -> str:
    if found.low == found.high:
        return short(found.median)
    return f"{short(found.median)} ({short(found.low)} .. {short(found.high)})"


def _times(found: Range | None) -> str:
    if found is None:
        return "-"
    return f"{_time(found.median)} ({_time(found.low)} .. {_time(found.high)})"


def _time(seconds: float) -> str:
    return duration(seconds) if seconds >= 1 else "none"
