"""The forms that a capacity report is written in: page, Markdown, CSV, JSON, gauges, mail."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from ..errors import HistoryError, JobError
from .console import progress

if TYPE_CHECKING:
    from ..site.capacity.report_data import CapacityReport

_FILE = click.Path(dir_okay=False, path_type=Path)
_FILE_NAME = re.compile(r"[^\w.@-]|^[.-]")
_OPTIONS = (
    click.option(
        "--output", type=_FILE, metavar="FILE", help="Write one page (.html) or Markdown (.md)."
    ),
    click.option(
        "--csv",
        "csv_dir",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Write every table as CSV.",
    ),
    click.option("--json", "json_file", type=_FILE, metavar="FILE", help="Write all as JSON."),
    click.option(
        "--prometheus",
        type=_FILE,
        metavar="FILE",
        help="Write gauges for node_exporter's textfile collector.",
    ),
    click.option(
        "--email",
        multiple=True,
        metavar="ADDRESS",
        help="Print the report as a mail to this address; repeatable.",
    ),
    click.option(
        "--user-pages",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Write a page for each user, and a mail to them: sendmail -t < DIR/USER.eml.",
    ),
    click.option("--email-from", default="root", show_default=True, help="Sender of the mail."),
    click.option("--send", is_flag=True, help="Hand the mail to the local sendmail."),
    click.option(
        "--site-key",
        type=_FILE,
        metavar="FILE",
        help="Replace names of people and jobs by hashes with this key.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forms:
    """The values of ``form_options``."""

    output: Path | None
    csv_dir: Path | None
    json_file: Path | None
    prometheus: Path | None
    email: tuple[str, ...]
    user_pages: Path | None
    email_from: str
    send: bool
    site_key: Path | None

    @classmethod
    def take(cls, values: dict[str, Any]) -> Self:
        """Out of the values of a command; raises click.UsageError for ones that contradict."""
        found = cls(**{field.name: values.pop(field.name) for field in fields(cls)})
        if found.send and not found.email:
            raise click.UsageError("--send needs --email ADDRESS")
        if found.output is not None and found.output.suffix not in (".html", ".md"):
            raise HistoryError(
                f"invalid output={str(found.output)!r}; expected a file that ends in .html or .md"
            )
        return found

    def private(self, report: CapacityReport) -> CapacityReport:
        """The report with hashed names where a key was given."""
        if self.site_key is None:
            return report
        from ..site.capacity.render import anonymised

        return anonymised(report, self.site_key)


def form_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that Forms is made of."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def written(found: CapacityReport, forms: Forms) -> list[Path]:
    """Write every form that was asked for; what was written."""
    paths = (forms.output, forms.csv_dir, forms.json_file, forms.prometheus, forms.user_pages)
    if not (any(paths) or forms.email):
        return []
    from ..site.capacity import render

    try:
        if forms.output is not None:
            html = forms.output.suffix == ".html"
            page = render.render_html(found) if html else render.render_markdown(found)
            forms.output.write_text(page, encoding="utf-8")
        if forms.csv_dir is not None:
            forms.csv_dir.mkdir(parents=True, exist_ok=True)
            render.write_csvs(found, forms.csv_dir)
        if forms.user_pages is not None:
            _write_user_pages(found, forms.user_pages, forms.email_from)
        if forms.json_file is not None:
            forms.json_file.write_text(render.render_json(found), encoding="utf-8")
        if forms.prometheus is not None:
            forms.prometheus.write_text(render.prometheus_text(found), encoding="utf-8")
    except OSError as error:
        raise HistoryError(f"{error.filename} cannot be written: {error.strerror}") from error
    _mail(found, forms)
    return [path for path in paths if path is not None]


def _write_user_pages(found: CapacityReport, folder: Path, sender: str) -> None:
    """A page and a mail for each user; no mail where the name is no address."""
    from ..site.capacity import render
    from ..site.capacity.jobs import UNKNOWN
    from ..site.capacity.render import mail
    from ..site.capacity.report_data import Dimension

    folder.mkdir(parents=True, exist_ok=True)
    users = [share.key for share in found.splits.get(Dimension.USER, ()) if share.key != UNKNOWN]
    with progress("pages of users") as told:
        for number, user in enumerate(users):
            told(user, number / len(users))
            mine = render.of_person(found, user)
            path = folder / _FILE_NAME.sub("_", user)
            path.with_name(f"{path.name}.html").write_text(render.render_html(mine), "utf-8")
            with suppress(JobError):
                written = mail.message(mine, sender, [user]).as_bytes()
                path.with_name(f"{path.name}.eml").write_bytes(written)


def _mail(found: CapacityReport, forms: Forms) -> None:
    if not forms.email:
        return
    from ..site.capacity.render import mail

    message = mail.message(found, forms.email_from, forms.email)
    if forms.send:
        mail.send(message)
        click.echo(f"sent to {', '.join(forms.email)}", err=True)
    else:
        click.echo(message.as_string(), err=True)
