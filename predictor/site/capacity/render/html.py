"""One HTML page that needs nothing beside it: no network, styles, script and plots inside."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ....optional import needs
from ..report_data import CapacityReport, Range
from .csvs import csv_text
from .findings import findings
from .headline import headlines
from .plots import Plot, plots
from .sections import gpus, origin, sections
from .table import Column, ColumnKind, ReportTable, Value
from .text import moment, period, shown

# Longer tables go on in their CSV: a page of 100,000 rows opens nowhere.
MOST_ROWS = 500
# Names up to so many letters are kept in one line.
_BRIEF = 24
_FIXED = "\u00a0"


@dataclass(frozen=True, slots=True)
class _Cell:
    text: str
    order: str
    css: str


@dataclass(frozen=True, slots=True)
class _Detail:
    label: str
    text: str
    code: bool


@dataclass(frozen=True, slots=True)
class _Head:
    label: str
    css: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _TableView:
    name: str
    title: str
    definition: str
    evidence: str
    columns: tuple[_Head, ...]
    detailed: bool


@dataclass(frozen=True, slots=True)
class _Row:
    cells: tuple[_Cell, ...]
    details: tuple[_Detail, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    table: _TableView
    rows: tuple[_Row, ...]
    hidden: int
    csv: str
    plot: Plot | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _SectionView:
    name: str
    title: str
    lead: str
    parts: tuple[_Part, ...]


def render_html(report: CapacityReport) -> str:
    """The page; raises NotInstalledError without Jinja or matplotlib."""
    drawn = plots(report)
    script = _read("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    views = tuple(
        _SectionView(
            name=section.name,
            title=section.title,
            lead=section.lead,
            parts=tuple(_part(table, drawn.get(table.name)) for table in section.tables),
        )
        for section in sections(report)
    )
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
        sections=views,
        css=_safe(_read("page.css")),
        script=_safe(script),
        script_hash=f"sha256-{digest}",
    )


def _part(table: ReportTable, plot: Plot | None) -> _Part:
    detailed = any(c.detail for c in table.columns)
    columns = tuple(
        _Head(table.columns[i].label, _css(table.columns[i]))
        for i in table.told
        if not table.columns[i].detail
    )
    encoded = base64.b64encode(csv_text(table).encode("utf-8", "replace")).decode()
    return _Part(
        table=_TableView(
            name=table.name,
            title=table.title,
            definition=table.definition,
            evidence=table.evidence,
            columns=columns,
            detailed=detailed,
        ),
        rows=tuple(_row(table, row) for row in table.rows[:MOST_ROWS]),
        hidden=max(0, len(table.rows) - MOST_ROWS),
        csv=f"data:text/csv;charset=utf-8;base64,{encoded}",
        plot=plot,
    )


def _row(table: ReportTable, row: tuple[Value, ...]) -> _Row:
    told = [(table.columns[i], row[i]) for i in table.told]
    return _Row(
        cells=tuple(_cell(column, value) for column, value in told if not column.detail),
        details=tuple(
            _Detail(column.label, column.text(value), column.kind is ColumnKind.CODE)
            for column, value in told
            if column.detail and value
        ),
    )


def _cell(column: Column, value: Value) -> _Cell:
    text, css = column.text(value), _css(column)
    if isinstance(value, Range):
        # The interval goes below its median where there is no room beside it.
        text, css = text.replace(" ", _FIXED).replace(f"{_FIXED}(", " ("), f"{css} span"
    elif column.kind is ColumnKind.NAME and len(text) <= _BRIEF:
        css += " brief"
    return _Cell(text, column.order(value), css)


def _css(column: Column) -> str:
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
