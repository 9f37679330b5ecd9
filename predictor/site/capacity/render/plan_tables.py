"""The tables of what could be done and what is to come."""

from __future__ import annotations

from collections.abc import Sequence

from ..report_data import Backlog, CapacityReport, Scenario, WaitingJob, WhatIf
from .table import Column, ColumnKind, ReportTable, Value

PREDICTED = "Predicted: median and central 95 % interval."


def opportunities(report: CapacityReport) -> ReportTable:
    """What one change would have saved, as ranked by whoever made the report."""
    currency = report.currency or "currency"
    return ReportTable(
        name="opportunities",
        title="What a change would have saved",
        definition=(
            "GPU-hours of similar jobs, and how many fewer they would have needed, with the 95 %"
            " interval; only changes of which even the low end of it saves. Rows may count the same"
            " job: do not add them up."
        ),
        evidence="Predicted; the details say from what.",
        columns=(
            Column("kind", "Change", ColumnKind.NAME),
            Column("what", "Jobs", ColumnKind.TEXT),
            Column("jobs", "Count", ColumnKind.COUNT),
            Column("gpu_hours", "GPU-hours"),
            Column("saved_gpu_hours", "GPU-hours saved", ColumnKind.SPAN),
            Column("saved_cost", f"Saved, {currency}", ColumnKind.SPAN),
            Column("saved_kwh", "Saved, kWh", ColumnKind.SPAN),
            Column("saved_co2e_kg", "Saved, kg CO2e", ColumnKind.SPAN),
            Column("users", "Users", ColumnKind.TEXT, detail=True),
            Column("evidence", "Evidence", ColumnKind.TEXT, detail=True),
            Column("command", "How to send the next one", ColumnKind.CODE, detail=True),
        ),
        rows=tuple(
            (
                o.kind.words,
                o.what,
                o.jobs,
                o.gpu_hours,
                o.saved_gpu_hours,
                o.saved_cost,
                o.saved_kwh,
                o.saved_co2e_kg,
                ", ".join(o.users),
                o.evidence,
                o.command,
            )
            for o in report.opportunities
        ),
    )


def backlog(found: Sequence[Backlog]) -> ReportTable:
    """What waits, by GPU type."""
    return ReportTable(
        name="backlog",
        title="What waits, by GPU type",
        definition=(
            "GPU-hours that waiting jobs still need. Of jobs that state too little to be predicted"
            " the upper bound is given: GPUs times limit. Drained: when all of it will have ended,"
            " from the moment of the report."
        ),
        evidence=PREDICTED,
        columns=(
            Column("gpu_type", "GPU type", ColumnKind.NAME),
            Column("jobs", "Jobs", ColumnKind.COUNT),
            Column("gpu_hours", "GPU-hours", ColumnKind.SPAN),
            Column("unknown_jobs", "Jobs not predicted", ColumnKind.COUNT),
            Column("unknown_gpu_hours", "Their GPU-hours, at most"),
            Column("drain_s", "Drained in", ColumnKind.DURATION_SPAN),
        ),
        rows=tuple(
            (b.gpu_type, b.jobs, b.gpu_hours, b.unknown_jobs, b.unknown_gpu_hours, b.drain_s)
            for b in found
        ),
    )


def queue(found: Sequence[WaitingJob]) -> ReportTable:
    """When each waiting job starts and ends."""
    waits_for = any(job.waits_for for job in found)
    return ReportTable(
        name="queue",
        title="When waiting jobs start and end",
        definition=(
            "From the moment of the report, by replaying the queue with predicted times."
            + (" Waits for: what it needs besides GPUs; a dash where that is nothing." * waits_for)
        ),
        evidence="Predicted; the details say from what.",
        columns=(
            Column("job_id", "Job", ColumnKind.NAME),
            Column("name", "Name", ColumnKind.NAME),
            Column("starts_s", "Starts in", ColumnKind.DURATION_SPAN),
            Column("ends_s", "Ends in", ColumnKind.DURATION_SPAN),
            Column("waits_for", "Waits for", ColumnKind.TEXT),
            Column("gpus", "GPUs", ColumnKind.COUNT),
            Column("gpu_type", "GPU type", ColumnKind.NAME),
            Column("user", "User", ColumnKind.NAME),
            Column("evidence", "Evidence", ColumnKind.TEXT, detail=True),
        ),
        rows=tuple(
            (
                j.job_id,
                j.name,
                j.starts_s,
                j.ends_s,
                j.waits_for or None,
                j.gpus,
                j.gpu_type,
                j.user,
                j.evidence,
            )
            for j in found
        ),
    )


def forecast(report: CapacityReport) -> ReportTable:
    """Demand by week, past and expected."""
    methods = dict.fromkeys(f.method for f in report.forecasts)
    return ReportTable(
        name="forecast",
        title="Demand by week",
        definition=(
            "GPU-hours asked for by the jobs submitted in a week, of those that have not ended as"
            " expected; of weeks to come the median with its 95 % and 80 % intervals."
        ),
        evidence=f"Method: {'; '.join(methods)}." if methods else PREDICTED,
        columns=(
            Column("key", "Partition or GPU type", ColumnKind.NAME),
            Column("week_utc", "Week from (UTC)", ColumnKind.DAY),
            Column("measured_gpu_hours", "Measured"),
            Column("expected_gpu_hours", "Expected (95 %)", ColumnKind.SPAN),
            Column("likely_gpu_hours", "Expected (80 %)", ColumnKind.SPAN),
            Column("capacity_gpu_hours", "Capacity"),
        ),
        rows=tuple(
            (f.key, week.start_s, week.measured, week.expected, week.likely, f.capacity)
            for f in report.forecasts
            for week in f.weeks
        ),
    )


def whatif(found: WhatIf | None, currency: str | None) -> ReportTable:
    """The period as it was and as it would have been, both replayed."""
    scenarios = () if found is None else (found.baseline, found.changed)
    return ReportTable(
        name="what-if",
        title="The period under a change",
        definition=(
            "Both rows are replays of the same submissions (FIFO with EASY backfill), so that they"
            " are alike. Utilisation: GPU-hours of jobs in the period over those of all GPUs."
            " GPU-hours and kWh are of whole jobs, also before and after the period."
        ),
        evidence="Simulated with predicted run times.",
        columns=(
            Column("scenario", "Scenario", ColumnKind.NAME),
            Column("gpus", "GPUs", ColumnKind.TEXT),
            Column("jobs", "Jobs", ColumnKind.COUNT),
            Column("never_started_jobs", "Never started", ColumnKind.COUNT),
            Column("mean_wait_s", "Mean wait", ColumnKind.DURATION),
            Column("median_wait_s", "Median wait", ColumnKind.DURATION),
            Column("p95_wait_s", "95 % within", ColumnKind.DURATION),
            Column("utilisation", "Utilisation", ColumnKind.SHARE),
            Column("gpu_hours", "GPU-hours"),
            Column("kwh", "kWh"),
            Column("cost", f"Cost, {currency or 'currency'}"),
        ),
        rows=tuple(_scenario(s) for s in scenarios),
    )


def _scenario(s: Scenario) -> tuple[Value, ...]:
    gpus = ", ".join(f"{count:,} {name}" for name, count in s.gpus.items())
    return (
        s.name,
        gpus,
        s.jobs,
        s.never_started,
        s.mean_wait_s,
        s.median_wait_s,
        s.p95_wait_s,
        s.utilisation,
        s.gpu_hours,
        s.kwh,
        s.cost,
    )
