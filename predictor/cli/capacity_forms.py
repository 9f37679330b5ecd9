"""The forms that a capacity report is written in: page, Markdown, CSV, JSON, gauges, mail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from ..errors import HistoryError

if TYPE_CHECKING:
    from ..site.capacity.report_data import CapacityReport

_FILE = click.Path(dir_okay=False, path_type=Path)
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
    paths = (forms.output, forms.csv_dir, forms.json_file, forms.prometheus)
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
        if forms.json_file is not None:
            forms.json_file.write_text(render.render_json(found), encoding="utf-8")
        if forms.prometheus is not None:
            forms.prometheus.write_text(render.prometheus_text(found), encoding="utf-8")
    except OSError as error:
        raise HistoryError(f"{error.filename} cannot be written: {error.strerror}") from error
    _mail(found, forms)
    return [path for path in paths if path is not None]


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
