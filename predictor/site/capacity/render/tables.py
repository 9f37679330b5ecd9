"""The sections and tables of a report, as ``tables.yaml`` describes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any

import yaml

from ..report_data import CapacityReport, DemandForecast, Dimension, Share, WeekDemand
from .table import Column, ColumnKind, ReportTable, Value
from .words import lead, read, said

_IDLE = ("idle_gpu_hours", "idle_wanted_gpu_hours")
_SPLIT = "by-"
# Values that no attribute of a row is.
_COMPUTED: Mapping[str, Callable[[Any], Value]] = {
    "limit_by": lambda use: "not known" if use.by is None else use.by.value,
    "user_names": lambda found: ", ".join(found.users),
    "waits_for_words": lambda job: job.waits_for or None,
    "state_words": lambda loss: loss.state.replace("_", " ") or "not known",
    "gpu_counts": lambda s: ", ".join(f"{count:,} {name}" for name, count in s.gpus.items()),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSection:
    """Tables under one heading; ``lead`` is said before them."""

    name: str
    title: str
    tables: tuple[ReportTable, ...]
    lead: str = ""


@dataclass(frozen=True, slots=True)
class _Part:
    share: Share
    part: float | None


@dataclass(frozen=True, slots=True)
class _Week:
    forecast: DemandForecast
    week: WeekDemand


def sections(report: CapacityReport) -> tuple[ReportSection, ...]:
    """Those that hold a table with rows, and in them these tables."""
    found = []
    for told in _described()["sections"]:
        tables = [of_report(name, report) for name in told["tables"]]
        filled = tuple(table for table in tables if table.rows)
        if filled:
            section = ReportSection(
                name=told["name"],
                title=told["title"],
                tables=filled,
                lead=lead(told["name"], report),
            )
            found.append(section)
    return tuple(found)


def every_table(report: CapacityReport) -> tuple[ReportTable, ...]:
    """The tables with rows, in the order of the report."""
    return tuple(table for section in sections(report) for table in section.tables)


def of_report(name: str, report: CapacityReport) -> ReportTable:
    """One table of a report."""
    if name.startswith(_SPLIT):
        return _split(report, Dimension(name.removeprefix(_SPLIT).replace("-", "_")))
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
    without: Sequence[str] = (),
    currency: str | None = None,
    report: CapacityReport | None = None,
    **words: str,
) -> ReportTable:
    """The table described as ``kind`` of these rows, with ``words`` filled in.

    Some tables need the ``report`` that their rows are of.
    """
    words["currency"] = currency or "currency"
    told = _described()[kind]
    kept = [column for column in told["columns"] if column["name"] not in without]
    values = [_value(column, report) for column in kept]
    return ReportTable(
        name=name or kind,
        title=told["title"].format(**words),
        definition=told["definition"].format(**words),
        evidence=told["evidence"].format(**words),
        columns=tuple(
            Column(
                column["name"].format(**words),
                column["label"].format(**words),
                ColumnKind(column.get("kind", ColumnKind.AMOUNT)),
                detail=column.get("detail", False),
            )
            for column in kept
        ),
        rows=tuple(tuple(value(row) for value in values) for row in rows),
    )


def _split(report: CapacityReport, dimension: Dimension) -> ReportTable:
    """GPU-hours by one dimension, the largest first."""
    total, told = report.hours.allocated, _described()
    idle = dimension is Dimension.GPU_TYPE
    shares = report.splits.get(dimension, ())
    heading = "GPU type" if idle else dimension.value.capitalize()
    return table_of(
        "split",
        [_Part(one, one.hours.allocated / total if total else None) for one in shares],
        name=_SPLIT + dimension.value.replace("_", "-"),
        without=() if idle else _IDLE,
        key=dimension.value,
        heading=heading,
        dimension=heading if idle else dimension.value,
        idle=told["idle"] if idle else "",
    )


@cache
def _described() -> Mapping[str, Any]:
    return dict(yaml.load(read("tables.yaml"), yaml.CSafeLoader))


def _value(column: Mapping[str, Any], report: CapacityReport | None) -> Callable[[Any], Value]:
    if report is not None and "say" in column:
        group, part = column["say"].split(".")
        return lambda row: said(group, int(part), row, report)
    where = column.get("of", column["name"])
    return _COMPUTED.get(where) or attrgetter(where)
