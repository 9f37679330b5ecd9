"""One HTML page that needs nothing beside it: no network, styles, script and plots inside."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

from ....optional import needs
from ..report_data import CapacityReport, Range
from .csvs import csv_text
from .findings import findings, headlines
from .plots import plots
from .sections import gpus, origin, sections
from .table import Column, ColumnKind, ReportTable, Value
from .text import moment, period, shown

# Longer tables go on in their CSV: a page of 100,000 rows opens nowhere.
MOST_ROWS = 500
# Names up to so many letters are kept in one line.
_BRIEF = 24
_FIXED = "\u00a0"


def render_html(report: CapacityReport) -> str:
    """The page; raises NotInstalledError without Jinja or matplotlib."""
    drawn = plots(report)
    script = _read("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _page(
        title=shown(report.title),
        period=period(report.period),
        gpus=gpus(report),
        origin=origin(report),
        made=moment(report.made_s),
        sample=report.origin.sample,
        version=report.version,
        headlines=headlines(report),
        actions=findings(report),
        notes=[shown(note, 400) for note in report.notes],
        sections=sections(report),
        plots=drawn,
        most_rows=MOST_ROWS,
        cell_text=cell_text,
        cell_css=cell_css,
        column_css=column_css,
        csv_url=csv_url,
        css=_safe(_read("page.css")),
        script=_safe(script),
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


@cache
def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _safe(text: str) -> object:
    from markupsafe import Markup

    return Markup(text)


def _page(**values: object) -> str:
    with needs("report"):
        from jinja2 import Environment, StrictUndefined
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_read("page.html.j2")).render(**values)
