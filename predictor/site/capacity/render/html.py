"""One HTML page that needs nothing beside it: no network, styles, script and plots inside."""

from __future__ import annotations

import base64
import hashlib

from ..report_data import CapacityReport, Range
from .csvs import csv_text
from .plots import plots
from .table import Column, ColumnKind, ReportTable, Value
from .tables import sections
from .text import shown
from .words import environment, filled, findings, headlines, read, templates

# Longer tables go on in their CSV: a page of 100,000 rows opens nowhere.
MOST_ROWS = 500
# Names up to so many letters are kept in one line.
_BRIEF = 24
_FIXED = "\u00a0"


def render_html(report: CapacityReport) -> str:
    """The page; raises NotInstalledError without Jinja."""
    script = read("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = environment(escaped=True).get_template("page.html.j2")
    return page.render(
        report=report,
        gpus=filled(templates()["gpus"], report),
        origin=filled(templates()["origin"], report),
        headlines=headlines(report),
        actions=findings(report),
        notes=[shown(note, 400) for note in report.notes],
        sections=sections(report),
        plots=plots(report),
        most_rows=MOST_ROWS,
        cell_text=cell_text,
        cell_css=cell_css,
        column_css=column_css,
        csv_url=csv_url,
        css=read("page.css"),
        script=script,
        script_hash=f"sha256-{digest}",
    )


def csv_url(table: ReportTable) -> str:
    """All rows of a table as a link that holds them."""
    encoded = base64.b64encode(csv_text(table).encode("utf-8", "replace")).decode()
    return f"data:text/csv;charset=utf-8;base64,{encoded}"


def cell_text(column: Column, value: Value) -> str:
    """A value; the interval of a range goes below its median where there is no room beside it."""
    text = column.text(value)
    if isinstance(value, Range):
        return text.replace(" ", _FIXED).replace(f"{_FIXED}(", " (")
    return text


def cell_css(column: Column, value: Value) -> str:
    """The classes of a cell."""
    if isinstance(value, Range):
        return f"{column_css(column)} span"
    brief = column.kind is ColumnKind.NAME and len(column.text(value)) <= _BRIEF
    return f"{column_css(column)} brief" if brief else column_css(column)


def column_css(column: Column) -> str:
    """The classes of a column."""
    if column.kind in (ColumnKind.MOMENT, ColumnKind.DAY):
        return "number moment"
    return "number" if column.numeric else column.kind.value
