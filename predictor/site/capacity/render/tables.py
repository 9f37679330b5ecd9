"""The tables of a report; ``tables.yaml`` says what each is called, means and holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import yaml

from ..report_data import (
    Backlog,
    CapacityReport,
    DemandForecast,
    Dimension,
    Share,
    WaitingJob,
    WeekDemand,
    WhatIf,
)
from .table import Column, ColumnKind, ReportTable, Value

BY = {
    Dimension.GPU_TYPE: "GPU type",
    Dimension.PARTITION: "Partition",
    Dimension.ACCOUNT: "Account",
    Dimension.USER: "User",
    Dimension.MODEL: "Model",
    Dimension.PRECISION: "Precision",
}
_IDLE = ("idle_gpu_hours", "idle_wanted_gpu_hours")
_IDLE_MEANS = (
    " Idle while waited for: GPUs free in a slot of time in which jobs waited for that type, at"
    " most as many as were waited for; also while room was kept for a large job."
)
_WAITS_FOR_MEANS = " Waits for: what it needs besides GPUs; a dash where that is nothing."
# Values that no attribute of a row is.
_COMPUTED: Mapping[str, Callable[[Any], Value]] = {
    "limit_by": lambda use: "not known" if use.by is None else use.by.value,
    "user_names": lambda found: ", ".join(found.users),
    "waits_for_words": lambda job: job.waits_for or None,
    "gpu_counts": lambda s: ", ".join(f"{count:,} {name}" for name, count in s.gpus.items()),
}


@dataclass(frozen=True, slots=True)
class _Part:
    share: Share
    part: float | None


@dataclass(frozen=True, slots=True)
class _Week:
    forecast: DemandForecast
    week: WeekDemand


def split(report: CapacityReport, dimension: Dimension) -> ReportTable:
    """GPU-hours by one dimension, the largest first."""
    total, idle = report.hours.allocated, dimension is Dimension.GPU_TYPE
    shares = report.splits.get(dimension, ())
    heading = BY[dimension]
    return _table(
        "split",
        [_Part(one, one.hours.allocated / total if total else None) for one in shares],
        name=f"by-{dimension.value.replace('_', '-')}",
        without=() if idle else _IDLE,
        key=dimension.value,
        heading=heading,
        dimension=heading if heading.startswith("GPU") else heading.lower(),
        idle=_IDLE_MEANS if idle else "",
    )


def use(report: CapacityReport) -> ReportTable:
    """GPU-hours by slot of time."""
    return _table("use", report.use)


def waits(report: CapacityReport) -> ReportTable:
    """From submission to start."""
    return _table("waits", report.waits)


def limits(report: CapacityReport) -> ReportTable:
    """Time limits, by who set them."""
    return _table("limits", report.limits)


def predictions(report: CapacityReport) -> ReportTable:
    """How right predictions were."""
    return _table("predictions", report.predictions)


def tensor_cores(report: CapacityReport) -> ReportTable:
    """What GPUs with tensor cores computed in."""
    return _table("tensor-cores", report.tensor_cores)


def set_aside(report: CapacityReport) -> ReportTable:
    """Jobs that count nowhere."""
    return _table("set-aside", report.origin.set_aside)


def opportunities(report: CapacityReport) -> ReportTable:
    """What one change would have saved, as ranked by whoever made the report."""
    return _table("opportunities", report.opportunities, currency=report.currency or "currency")


def backlog(found: Sequence[Backlog]) -> ReportTable:
    """What waits, by GPU type."""
    return _table("backlog", found)


def queue(found: Sequence[WaitingJob]) -> ReportTable:
    """When each waiting job starts and ends."""
    waits = any(job.waits_for for job in found)
    return _table("queue", found, waits_for=_WAITS_FOR_MEANS if waits else "")


def forecast(report: CapacityReport) -> ReportTable:
    """Demand by week, past and expected."""
    methods = dict.fromkeys(f.method for f in report.forecasts)
    weeks = [_Week(f, week) for f in report.forecasts for week in f.weeks]
    return _table("forecast", weeks, method="; ".join(methods))


def whatif(found: WhatIf | None, currency: str | None) -> ReportTable:
    """The period as it was and as it would have been, both replayed."""
    scenarios = () if found is None else (found.baseline, found.changed)
    return _table("what-if", scenarios, currency=currency or "currency")


@cache
def _described() -> Mapping[str, Any]:
    path = Path(__file__).with_suffix(".yaml")
    return dict(yaml.load(path.read_bytes(), yaml.CSafeLoader))


def _table(
    of: str, rows: Iterable[object], *, name: str = "", without: Sequence[str] = (), **words: str
) -> ReportTable:
    """The table described as ``of`` of these rows, with ``words`` filled in."""
    told = _described()[of]
    kept = [column for column in told["columns"] if column["name"] not in without]
    values = [_value(column.get("of", column["name"])) for column in kept]
    return ReportTable(
        name=name or of,
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


def _value(where: str) -> Callable[[Any], Value]:
    return _COMPUTED.get(where) or attrgetter(where)
