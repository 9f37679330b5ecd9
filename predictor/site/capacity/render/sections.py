"""The order of a report: its sections and the tables in each."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..report_data import CapacityReport, Dimension
from . import tables
from .table import ReportTable
from .text import percent, rough, shown

_CREDENTIALS = re.compile(r"://[^/]*@")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSection:
    """Tables under one heading; ``lead`` is said before them."""

    name: str
    title: str
    tables: tuple[ReportTable, ...]
    lead: str = ""


def sections(report: CapacityReport) -> tuple[ReportSection, ...]:
    """Those that hold a table with rows, and in them these tables."""
    every = (
        ReportSection(
            name="opportunities-section",
            title="What to change",
            tables=(tables.opportunities(report), tables.tensor_cores(report)),
        ),
        ReportSection(
            name="hours",
            title="Where GPU-hours went",
            tables=(tables.use(report), *(tables.split(report, d) for d in _ORDER)),
        ),
        ReportSection(
            name="waiting",
            title="Waits and limits",
            tables=(tables.waits(report), tables.limits(report)),
            lead=_limits_lead(report),
        ),
        ReportSection(
            name="queue-section",
            title="What the queue still needs",
            tables=(tables.backlog(report.backlog), tables.queue(report.queue)),
        ),
        ReportSection(name="plan", title="What is to come", tables=(tables.forecast(report),)),
        ReportSection(
            name="what-if-section",
            title="What if",
            tables=(tables.whatif(report.whatif, report.currency),),
            lead=_whatif_lead(report),
        ),
        ReportSection(
            name="trust",
            title="How far to trust this",
            tables=(tables.predictions(report), tables.set_aside(report)),
        ),
    )
    return tuple(found for section in every if (found := _filled(section)).tables)


def every_table(report: CapacityReport) -> tuple[ReportTable, ...]:
    """The tables with rows, in the order of the report."""
    return tuple(table for section in sections(report) for table in section.tables)


def gpus(report: CapacityReport) -> str:
    """What the cluster has: ``8 a100, 16 v100``."""
    named = ", ".join(f"{count:,} {shown(name)}" for name, count in report.gpus.items())
    return named or "Number of GPUs not known"


def origin(report: CapacityReport) -> str:
    """Where the jobs come from, without the user and password of a URL."""
    found = report.origin
    name = _CREDENTIALS.sub("://", found.name)
    return f"{shown(found.kind)} {shown(name)}, {found.jobs:,} jobs"


_ORDER = (
    Dimension.GPU_TYPE,
    Dimension.PARTITION,
    Dimension.ACCOUNT,
    Dimension.USER,
    Dimension.MODEL,
    Dimension.PRECISION,
)


def _filled(section: ReportSection) -> ReportSection:
    return ReportSection(
        name=section.name,
        title=section.title,
        lead=section.lead,
        tables=tuple(table for table in section.tables if table.rows),
    )


def _limits_lead(report: CapacityReport) -> str:
    accuracy = report.wall_time_accuracy
    if accuracy is None:
        return ""
    return f"Of all the wall time that limits asked for, jobs used {percent(accuracy)}."


def _whatif_lead(report: CapacityReport) -> str:
    found = report.whatif
    if found is None:
        return ""
    before, after = rough(found.baseline.mean_wait_s), rough(found.changed.mean_wait_s)
    text = (
        f"{shown(found.change, 200)}: the mean wait goes from {before} to {after}, both replayed."
        f" Jobs really waited {rough(found.history_mean_wait_s)}: the nearer the first is to that,"
        " the further to trust the second."
    )
    if found.unmoved_jobs:
        text += f" {found.unmoved_jobs:,} jobs could not be predicted and kept time and GPU type."
    return text
