"""A report as Markdown that also reads well as plain text, and by mail with the page attached.

The local sendmail sends it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from email.message import EmailMessage

from ....errors import JobError, NotInstalledError, ReportError
from ..report_data import CapacityReport
from .page import render_html
from .tables import ReportTable, sections
from .words import day, filled, findings, headlines, moment, period, shown, templates

MOST_ROWS = 10
# Tables for looking things up, too wide or too long for a mail.
_LEFT_OUT = ("use", "queue", "forecast")
_COLUMNS_LEFT_OUT = ("completed_gpu_hours", "running_gpu_hours")
_MARKS = re.compile(r"([\\`*_\[\]<>|~])")
# Sendmail's usual places beside the PATH, which daemons seldom have.
_ALSO = ("/usr/sbin", "/usr/lib")
LONGEST_S = 60
_ADDRESS = re.compile(
    r"[^\s@,;<>\"()\[\]\\:]+@[^\s@,;<>\"()\[\]\\:]+|[A-Za-z0-9_.][\w.-]*", re.ASCII
)


def render_markdown(report: CapacityReport) -> str:
    """Summary first, then the ten largest rows of each table."""
    parts = [render_summary(report)]
    for section in sections(report):
        tables = [table for table in section.tables if table.name not in _LEFT_OUT]
        if tables:
            parts.append(f"## {section.title}\n")
            parts += [f"{escaped(section.lead)}\n"] if section.lead else []
            parts += [_table(table) for table in tables]
    if report.notes:
        parts.append("## Notes on this report\n")
        parts.append("".join(f"- {escaped(shown(note, 400))}\n" for note in report.notes))
    return "\n".join(parts)


def render_summary(report: CapacityReport) -> str:
    """What the report is of, its figures and the top findings."""
    sample = "**Sample data: these jobs were generated, nothing was measured on a cluster.**\n\n"
    lines = [
        f"# {escaped(shown(report.title))}\n\n{sample if report.origin.sample else ''}",
        f"{period(report.period)}. {escaped(filled(templates()['gpus'], report))}.",
        f" From {escaped(filled(templates()['origin'], report))}.",
        f" Made {moment(report.made_s)} UTC.\n\n",
    ]
    for one in headlines(report):
        lines.append(f"- **{one.label}: {one.value}**. {escaped(one.detail)} ({one.evidence})\n")
    found = findings(report)
    lines += ["\nTop findings, by GPU-hours:\n\n"] if found else []
    for number, action in enumerate(found, start=1):
        lines.append(f"{number}. **{action.title}** {escaped(action.what)}\n")
        lines.append(f"\n       {shown(action.command, 4000)}\n\n" if action.command else "")
    return "".join(lines)


def escaped(text: str) -> str:
    """A text that means nothing to Markdown or HTML."""
    return _MARKS.sub(r"\\\1", text.replace("&", "&amp;"))


def _table(table: ReportTable) -> str:
    kept = [i for i in table.shown if table.columns[i].name not in _COLUMNS_LEFT_OUT]
    columns = [table.columns[i] for i in kept]
    head = "| " + " | ".join(escaped(c.label) for c in columns) + " |\n"
    rule = "|" + "|".join("---:" if c.numeric else "---" for c in columns) + "|\n"
    cells = [[escaped(table.columns[i].text(row[i])) for i in kept] for row in table.rows]
    rows = "".join(f"| {' | '.join(row)} |\n" for row in cells[:MOST_ROWS])
    hidden = len(table.rows) - MOST_ROWS
    more = f"\n{hidden:,} more rows are in the page and its CSV.\n" if hidden > 0 else ""
    return f"### {table.title}\n\n{head}{rule}{rows}{more}"


def message(report: CapacityReport, sender: str, recipients: Sequence[str]) -> EmailMessage:
    """The mail as it would be sent.

    Raises JobError for an address that is none, NotInstalledError as the page does.
    """
    found = EmailMessage()
    found["Subject"] = (
        f"{shown(report.title)}: {day(report.period.since_s)} to {day(report.period.until_s)}"
    )
    found["From"] = _address("from", sender)
    found["To"] = ", ".join(_address("email", each) for each in recipients)
    found["Auto-Submitted"] = "auto-generated"
    found.set_content(render_markdown(report).encode("utf-8", "replace").decode(), subtype="plain")
    page = render_html(report).encode("utf-8", "replace")
    name = f"capacity-{day(report.period.until_s)}.html"
    found.add_attachment(page, maintype="text", subtype="html", filename=name)
    return found


def send(found: EmailMessage) -> None:
    """Hand it to sendmail.

    Raises NotInstalledError without one, ReportError where it refuses or takes too long.
    """
    program = sendmail()
    try:
        # Recipients are read from the message, so no address can be taken for an option.
        done = subprocess.run(
            [program, "-t", "-i"],
            input=found.as_bytes(),
            capture_output=True,
            timeout=LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ReportError(
            f"{program} took more than {LONGEST_S} s: the mail may not be sent"
        ) from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip() or f"exit status {done.returncode}"
        raise ReportError(f"{program} refused the mail: {said}")


def sendmail() -> str:
    """The path of sendmail; raises NotInstalledError without one."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *_ALSO))
    found = shutil.which("sendmail", path=path)
    if found is None:
        raise NotInstalledError(
            "--send needs a local sendmail (postfix, exim, msmtp-mta or the like)"
        )
    return found


def _address(field: str, text: str) -> str:
    if not _ADDRESS.fullmatch(text):
        raise JobError(field, text, "an address such as ops@example.org, or a local user")
    return text
