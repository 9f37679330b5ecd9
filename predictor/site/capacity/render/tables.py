"""The tables of a report, which all its forms are made of, as ``tables.yaml`` describes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from profiles.storage import shipped_yaml

from ....units import MISSING, percent
from ..report_data import CapacityReport, DemandForecast, Dimension, Range, WeekDemand
from .words import amount, day, duration_span, filled, moment, rough, said, shown, span, templates

Value = str | float | int | Range | None
_SPLIT = "by-"
# Values that no attribute of a row is.
_COMPUTED: Mapping[str, Callable[[Any], Value]] = {
    "limit_by": lambda use: use.by or "not known",
    "kind_words": lambda found: found.kind.value.replace("-", " ").replace("gpu", "GPU"),
    "user_names": lambda found: ", ".join(found.users),
    "waits_for_words": lambda job: job.waits_for or None,
    "state_words": lambda loss: loss.state.replace("_", " ") or "not known",
    "gpu_counts": lambda s: ", ".join(f"{count:,} {name}" for name, count in s.gpus.items()),
}

_described = partial(shipped_yaml, "tables.yaml", __file__)


# What a column may hold, and how that is written.
_FORMS: Mapping[str, Callable[[Any], str]] = {
    "name": shown,
    "text": lambda value: shown(value, 300),
    "code": lambda value: shown(value, 600),
    "count": lambda value: f"{value:,}",
    "amount": amount,
    "share": percent,
    "duration": rough,
    "moment": moment,
    "day": day,
    "span": span,
    "duration-span": duration_span,
}


@dataclass(frozen=True, slots=True)
class Column:
    """``name`` heads it in CSV, unit included; ``label`` heads it for people; ``kind`` is a form.

    What is ``detail`` is shown on demand, behind the other columns.
    """

    name: str
    label: str
    kind: str = "amount"
    detail: bool = False

    @property
    def numeric(self) -> bool:
        """Whether it is sorted by size and set to the right."""
        return self.kind not in ("name", "text", "code")

    @property
    def is_span(self) -> bool:
        """Whether its values are ranges."""
        return self.kind in ("span", "duration-span")

    @property
    def is_moment(self) -> bool:
        """Whether its values are Unix seconds."""
        return self.kind in ("moment", "day")

    def text(self, value: Value) -> str:
        """The value for people."""
        return MISSING if value is None else _FORMS[self.kind](value)

    def order(self, value: Value) -> str:
        """What a script sorts the value by; empty where it is not known."""
        if value is None:
            return ""
        if isinstance(value, Range):
            return repr(float(value.median))
        return repr(float(value)) if not isinstance(value, str) else shown(value).casefold()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """``definition`` says what the figures mean, ``evidence`` what they rest on."""

    name: str
    title: str
    definition: str
    evidence: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]

    @property
    def shown(self) -> tuple[int, ...]:
        """Places of the columns in which something is known, without the details."""
        return tuple(
            place
            for place, column in enumerate(self.columns)
            if not column.detail and any(row[place] is not None for row in self.rows)
        )

    def details_of(self, row: tuple[Value, ...]) -> list[tuple[Column, Value]]:
        """What is shown on demand of a row."""
        pairs = zip(self.columns, row, strict=True)
        return [(column, value) for column, value in pairs if column.detail and value]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSection:
    """Tables under one heading; ``lead`` is said before them."""

    name: str
    title: str
    tables: tuple[ReportTable, ...]
    lead: str = ""


class _Week(NamedTuple):
    forecast: DemandForecast
    week: WeekDemand


def sections(report: CapacityReport) -> tuple[ReportSection, ...]:
    """Those that hold a table with rows, and in them these tables."""
    found = []
    for told in _described()["sections"]:
        tables = [of_report(name, report) for name in told["tables"]]
        known = tuple(table for table in tables if table.rows)
        if known:
            name = told["name"]
            more = filled(templates()["leads"].get(name, ""), report)
            found.append(ReportSection(name=name, title=told["title"], tables=known, lead=more))
    return tuple(found)


def of_report(name: str, report: CapacityReport) -> ReportTable:
    """One table of a report."""
    if name.startswith(_SPLIT):
        dimension = Dimension(name.removeprefix(_SPLIT).replace("-", "_"))
        is_type = dimension is Dimension.GPU_TYPE
        heading = "GPU type" if is_type else dimension.value.capitalize()
        words = {
            "key": dimension.value,
            "heading": heading,
            "dimension": heading if is_type else dimension.value,
            "idle": _described()["idle"] if is_type else "",
        }
        rows = report.splits.get(dimension, ())
        return table_of("split", rows, name=name, report=report, only=dimension, **words)
    if name == "forecast":
        weeks = [_Week(one, week) for one in report.forecasts for week in one.weeks]
        methods = dict.fromkeys(one.method for one in report.forecasts)
        return table_of(name, weeks, method="; ".join(methods))
    rows = attrgetter(_described()[name]["rows"])(report)
    return table_of(name, rows, currency=report.currency, report=report)


def table_of(
    kind: str,
    rows: Iterable[object],
    *,
    name: str = "",
    only: str = "",
    currency: str | None = None,
    report: CapacityReport | None = None,
    **words: str,
) -> ReportTable:
    """The table described as ``kind`` of these rows, with ``words`` filled in.

    Some tables need the ``report`` that their rows are of; ``only`` is what their columns are of.
    """
    words["currency"] = currency or "currency"
    told = _described()[kind]
    kept = [column for column in told["columns"] if column.get("only", only) == only]
    values = [_value(column, report) for column in kept]
    columns = [
        Column(
            column["name"].format(**words),
            column["label"].format(**words),
            column.get("kind", "amount"),
            detail=column.get("detail", False),
        )
        for column in kept
    ]
    return ReportTable(
        name=name or kind,
        columns=tuple(columns),
        rows=tuple(tuple(value(row) for value in values) for row in rows),
        **{part: told[part].format(**words) for part in ("title", "definition", "evidence")},
    )


def _value(column: Mapping[str, Any], report: CapacityReport | None) -> Callable[[Any], Value]:
    if report is not None and "say" in column:
        group, part = column["say"].split(".")
        return lambda row: said(group, int(part), row, report)
    where = column.get("of", column["name"])
    if report is not None and where == "part":
        total = report.hours.allocated
        return lambda row: row.hours.allocated / total if total else None
    return _COMPUTED.get(where) or attrgetter(where)
