"""`precision-time history`: the record of ended jobs, filled, shown, copied out and shortened."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

from ..errors import HistoryError
from ..units import DAY_S, MISSING, count, duration
from . import filling
from .console import format_option, show_json, show_rows, warn
from .evaluate import warn_of_unknown_words
from .filling import filled, filter_options, history_option, open_history, where_of
from .groups import CommandGroup
from .options import listed_options, moment, together

if TYPE_CHECKING:
    from ..site.history.accounting_table import AccountingTable
    from ..site.history.run import Run

FIRST_NUMBER = 6


@click.group(cls=CommandGroup, extra="history")
def history() -> None:
    """Keep what ended jobs were asked, predicted and measured.

    In a SQLite file, or in PostgreSQL by --history postgresql://USER@HOST/DATABASE.
    """


@history.command()
@history_option
@format_option
def status(history: str | None, form: str) -> None:
    """Tell what the history holds and how it is kept."""
    with open_history(history, create=False) as store:
        found = asdict(store.status())
    if form == "json":
        show_json(found)
        return
    cursors = found.pop("cursors")
    for name, value in found.items():
        click.echo(f"{name.removesuffix('_s').replace('_', ' '):<18}{_text(name, value)}")
    for name, at_s in cursors.items():
        click.echo(f"{name + ' until':<18}{_moment(at_s)}")


@history.command()
@history_option
@click.option("--before", type=moment, help="Runs that ended before  [default: keep_days]")
def forget(history: str | None, before: float | None) -> None:
    """Delete old runs for good."""
    with open_history(history, create=False) as store:
        keep_days = store.settings.keep_days
        if before is None and keep_days is None:
            raise HistoryError("invalid before=None; expected a time, or keep_days in the settings")
        before_s = time.time() - (keep_days or 0) * DAY_S if before is None else before
        gone = store.forget(before_s)
    click.echo(f"{count(gone)} runs forgotten that ended before {_moment(before_s)}")


@history.command()
@click.argument("file", type=click.Path(path_type=Path))
@history_option
@filter_options
def export(file: Path, history: str | None, **filters: Any) -> None:
    """Write runs to FILE, one a row: .parquet, .csv or .ndjson."""
    from ..site.history.frame import export as write

    where = where_of(filters)
    with open_history(history, create=False) as store:
        write(store.frame(where), file)
        click.echo(f"{file}: {count(store.count(where))} runs")


@history.command()
@click.argument("jobs", nargs=-1, metavar="[JOB]...")
@history_option
@listed_options("shown")
@filter_options
@format_option
def show(jobs: tuple[str, ...], history: str | None, last: int, form: str, **filters: Any) -> None:
    """Show the runs that ended last, or those of jobs by id."""
    with open_history(history, create=False) as store:
        runs = store.latest(last, where_of(filters, job_ids=jobs))
    if form == "json":
        show_json([asdict(run) for run in runs])
    else:
        show_rows([_row(run) for run in runs], left=FIRST_NUMBER)


def _row(run: Run) -> dict[str, str]:
    job, said, told = run.ended, run.predicted, run.reported
    return {
        "ended": _moment(job.end_s),
        "job": job.job_id,
        "user": job.user or MISSING,
        "state": job.state.value,
        "model": run.model or MISSING,
        "precision": run.precision or MISSING,
        "GPUs": str(job.gpus),
        "ran": duration(None if job.start_s is None else job.end_s - job.start_s),
        "predicted": duration(said.median_s if said else None),
        "limit": duration(job.limit_s),
        "step": duration(told.step_s if told else None),
        "predicted step": duration(said.step_s if said else None),
    }


def _text(name: str, value: Any) -> str:
    if value is None:
        return MISSING
    if name.endswith("_s"):
        return _moment(value)
    return count(value) if isinstance(value, int | float) else value


def _moment(moment_s: float) -> str:
    return f"{datetime.fromtimestamp(moment_s):%Y-%m-%d %H:%M}"


def _zone(text: str) -> tzinfo:
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise click.BadParameter(f"invalid {text!r}; expected a name such as UTC") from None


_FILE = click.argument("file", type=click.Path(path_type=Path))
_CLUSTER = listed_options("cluster")
_ZONE = click.option(
    "--zone",
    type=_zone,
    metavar="NAME",
    help="The time zone of times that name none, such as Europe/Berlin  [default: of this machine]",
)


def _shared(*options: Callable[..., Any]) -> Callable[..., Any]:
    """The argument FILE and what every command here takes, with options of its own between."""
    return together(_FILE, *options, history_option, format_option)


@history.group(cls=CommandGroup, plugins="precision_time.ingest")
def ingest() -> None:
    """Add ended jobs to the history.

    What is there already is brought up to date, never doubled. Installed schedulers add a
    command each.
    """


@ingest.command()
@_shared(_CLUSTER, _ZONE)
def csv(file: Path, cluster: str, zone: tzinfo | None, history: str | None, form: str) -> None:
    """Add the jobs of an accounting table FILE, or measured runs.

    Of a job it takes user, name, queue, gpus, submit, start, end, limit, state and more, under
    the names these columns have in many tables; submit, end and gpus must be there. Times are
    Unix seconds or ISO 8601. Separated by commas, tabs, semicolons or pipes, gzipped or not.

    A table in the columns of `precision-time evaluate` holds measured runs. Its columns submit_s,
    start_s and end_s may tell when a run was; without them it counts as ended when the file was
    written.
    """
    from ..estimate.measurement import REQUIRED, read_csv
    from ..site.history.accounting_table import AccountingTable
    from ..site.history.csv_rows import items

    table = AccountingTable(file, "table", cluster=cluster, zone=zone)
    if not {*REQUIRED} <= {*table.header()}:
        _fill(table, history, form)
        return
    rows = read_csv(file)
    warn_of_unknown_words(rows)
    with open_history(history) as store:
        found = items(rows, file.stat().st_mtime)
        filling.show(filled(store, found, lambda tally: tally.records / len(rows)), store.url, form)


@ingest.command()
@_shared(_CLUSTER, _ZONE)
def sacct(file: Path, cluster: str, zone: tzinfo | None, history: str | None, form: str) -> None:
    """Add the jobs of FILE, as `sacct -P` or `sacct -p` wrote it with its header.

    Fields that are taken: JobID, Cluster, User, Account, Partition, QOS, JobName, State, Submit,
    Start, End, Timelimit or TimelimitRaw, AllocTRES or ReqTRES, NNodes, ReqCPUS, ReqMem, WorkDir,
    SubmitLine, Comment, Constraints. Steps are skipped.
    """
    from ..site.history.accounting_table import AccountingTable

    _fill(AccountingTable(file, "slurm", cluster=cluster, zone=zone), history, form)


@ingest.command()
@listed_options("ingest-swf")
@_shared(_CLUSTER)
def swf(
    file: Path, cluster: str, processors_per_gpu: float, history: str | None, form: str
) -> None:
    """Add the jobs of FILE in the Standard Workload Format; fields after the 18 are skipped."""
    from ..site.history.swf import read_swf

    found = read_swf(file, processors_per_gpu=processors_per_gpu, cluster=cluster).items
    with open_history(history) as store:
        tally = filled(store, found, lambda tally: tally.records / len(found))
        filling.show(tally, store.url, form)


def _fill(table: AccountingTable, history: str | None, form: str) -> None:
    with open_history(history) as store:
        filling.show(filled(store, table, lambda _: table.share), store.url, form)
    if table.assumes_starts:
        warn(
            "no column says when jobs started: it follows from end and run time, and where there"
            " is no end a job counts as started when it was submitted"
        )
    if table.unread and form != "json":
        click.echo(f"  columns not read: {', '.join(table.unread)}")
