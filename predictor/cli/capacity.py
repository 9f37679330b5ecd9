"""`precision-time capacity`: where GPU-hours went, what waits, what a change would buy."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import HistoryError, JobError, TraceError
from .capacity_source import (
    CapacityRequest,
    capacity_options,
    opened,
    opened_queue,
    plan_options,
    queue_options,
)
from .console import progress, show_json, show_table, warn
from .groups import CommandGroup
from .options import listed_options, predictor

if TYPE_CHECKING:
    from ..site.capacity.render.tables import ReportTable
    from ..site.capacity.report_data import CapacityReport

_FILE_NAME = re.compile(r"[^\w.@-]|^[.-]")


@click.group(cls=CommandGroup, extra="report")
def capacity() -> None:
    """Report where GPU-hours went, what the queue still needs and what a change would buy."""


@capacity.command()
@capacity_options
@plan_options
@listed_options("forms")
def report(
    *,
    form: str,
    output: Path | None,
    csv_dir: Path | None,
    json_file: Path | None,
    prometheus: Path | None,
    email: tuple[str, ...],
    user_pages: Path | None,
    email_from: str,
    send: bool,
    site_key: Path | None,
    measured: str | None,
    **asked: Any,
) -> None:
    """Report on a period: hours, waits, limits, opportunities, backlog and forecast.

    With --add, --remove or --to-precision also what that change would have done.
    """
    from ..site.capacity.measured import read_measured
    from ..site.capacity.render import files, mail, page
    from ..site.capacity.report import Wanted, anonymised, make_report

    if send and not email:
        raise click.UsageError("--send needs --email ADDRESS")
    if output is not None and output.suffix not in (".html", ".md"):
        raise HistoryError(
            f"invalid output={str(output)!r}; expected a file that ends in .html or .md"
        )
    want = CapacityRequest(**asked)
    with opened(want) as source, progress("report") as bar:
        wanted = Wanted(
            pools=want.pools,
            terms=want.terms,
            plan=want.plan,
            most_configurations=want.configurations,
            measured=[] if measured is None else read_measured(measured, want.period),
        )
        found = make_report(source, want.period, predictor(want.version), wanted, bar)
    if site_key is not None:
        found = anonymised(found, site_key)
    try:
        if output is not None:
            html = output.suffix == ".html"
            text = page.render_html(found) if html else mail.render_markdown(found)
            output.write_text(text, encoding="utf-8")
        if csv_dir is not None:
            files.write_csvs(found, csv_dir)
        if user_pages is not None:
            _write_user_pages(found, user_pages, email_from)
        if json_file is not None:
            json_file.write_text(files.render_json(found), encoding="utf-8")
        if prometheus is not None:
            prometheus.write_text(files.prometheus_text(found), encoding="utf-8")
    except OSError as error:
        raise HistoryError(
            f"{error.filename or output} cannot be written: {error.strerror}"
        ) from error
    if email:
        message = mail.message(found, email_from, email)
        if send:
            mail.send(message)
        sent = f"sent to {', '.join(email)}" if send else message.as_string()
        click.echo(sent, err=True)
    for path in (output, csv_dir, json_file, prometheus, user_pages):
        if path is not None:
            click.echo(f"wrote {path}", err=True)
    if form == "json":
        show_json(found.as_dict())
        return
    click.echo(mail.render_summary(found))
    for note in found.notes:
        click.echo(note)
    if found.whatif is not None:
        _show_table("what-if", found.scenarios, found.currency)


@capacity.command()
@capacity_options
@plan_options
def whatif(form: str, **asked: Any) -> None:
    """Replay a period with other GPUs or in another precision.

    The period is replayed twice, as it was and changed: compare the two with each other. How far
    the first is from what was really waited tells how far to trust them. Jobs that do not say what
    they are keep their time and their GPU type.
    """
    from ..site.capacity import jobs
    from ..site.capacity.configurations import Outlook
    from ..site.capacity.whatif import what_if

    want = CapacityRequest(**asked)
    if want.plan is None:
        raise TraceError("nothing would change: give --add, --remove or --to-precision")
    with opened(want) as source:
        ran = jobs.jobs_of(source.frame, want.period)
        pools = jobs.pools_of(ran.table, jobs.stated_pools(want.pools, source.pools))
    outlook = Outlook(predictor(want.version))
    found = what_if(ran, want.plan, outlook, want.terms, pools, most=want.configurations)
    if form == "json":
        show_json(asdict(found))
    else:
        _show_table("what-if", (found.baseline, found.changed), want.terms.tariff.currency)


@capacity.command()
@queue_options
def queue(form: str, **asked: Any) -> None:
    """Show when each waiting job starts and ends, by GPU type.

    The queue is that of a scheduler now, or that of --until in a file of jobs (waiting ones have
    no start, running ones no end) or in a history. It is replayed many times with run times drawn
    from the estimates that `precision-time estimate` gives.
    """
    from ..site.capacity import jobs
    from ..site.capacity.queue import cleared, estimates_at, queue_at
    from ..site.capacity.render.words import counted

    want = CapacityRequest(**asked)
    with opened_queue(want) as source:
        period = want.period
        table = jobs.jobs_of(source.frame, period).table
        pools = jobs.pools_of(table, jobs.stated_pools(want.pools, source.pools))
        waiting = queue_at(source, period.until_s)
        estimate = estimates_at(source, waiting.at_s, pools, predictor(want.version))
        found = cleared(waiting, pools, estimate)
    for aside in found.set_aside:
        warn(f"{counted(aside.jobs, 'job')} skipped, such as {aside.example}: {aside.reason}")
    if form == "json":
        show_json({"at_s": waiting.at_s} | asdict(found))
        return
    for note in found.notes:
        click.echo(f"{note}\n")
    if not (found.queue or found.set_aside):
        click.echo("No job waits for GPUs.")
        return
    _show_table("backlog", found.backlog)
    click.echo()
    _show_table("queue", found.queue)


def _show_table(kind: str, found: tuple[object, ...], currency: str | None = None) -> None:
    """A table of a report as text."""
    from ..site.capacity.render.tables import table_of

    table: ReportTable = table_of(kind, found, currency=currency)
    columns = [table.columns[i] for i in table.shown]
    rows = [[table.columns[i].text(row[i]) for i in table.shown] for row in table.rows]
    left = [at for at, column in enumerate(columns) if not column.numeric]
    show_table([column.label for column in columns], rows, left=left)


def _write_user_pages(found: CapacityReport, folder: Path, sender: str) -> None:
    """A page and a mail for each user; no mail where the name is no address."""
    from ..site.capacity.jobs import UNKNOWN
    from ..site.capacity.render import mail, page
    from ..site.capacity.report import of_person
    from ..site.capacity.report_data import Dimension

    folder.mkdir(parents=True, exist_ok=True)
    users = [share.key for share in found.splits.get(Dimension.USER, ()) if share.key != UNKNOWN]
    with progress("pages of users") as told:
        for number, user in enumerate(users):
            told(user, number / len(users))
            mine = of_person(found, user)
            path = folder / _FILE_NAME.sub("_", user)
            path.with_name(f"{path.name}.html").write_text(page.render_html(mine), "utf-8")
            with suppress(JobError):
                written = mail.message(mine, sender, [user]).as_bytes()
                path.with_name(f"{path.name}.eml").write_bytes(written)
