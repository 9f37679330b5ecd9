"""The tables of what happened: where GPU-hours went, waits, limits, predictions."""

from __future__ import annotations

from ..report_data import CapacityReport, Dimension, GpuHours, Share
from .table import Column, ColumnKind, ReportTable, Value

MEASURED = "Measured: the scheduler's records of jobs."
BY = {
    Dimension.GPU_TYPE: "GPU type",
    Dimension.PARTITION: "Partition",
    Dimension.ACCOUNT: "Account",
    Dimension.USER: "User",
    Dimension.MODEL: "Model",
    Dimension.PRECISION: "Precision",
}
_HOURS = (
    Column("completed_gpu_hours", "Completed"),
    Column("running_gpu_hours", "Running"),
    Column("cancelled_gpu_hours", "Cancelled"),
    Column("failed_gpu_hours", "Failed"),
    Column("timed_out_gpu_hours", "Timed out"),
    Column("preempted_gpu_hours", "Preempted"),
)
_OUTCOMES = (
    "GPU-hours: GPUs of a job times the hours it held them, clipped to the period. Running: of jobs"
    " that had not ended at its end. Failed includes failed nodes and memory that ran out."
)


_IDLE = (Column("idle_gpu_hours", "Idle"), Column("idle_wanted_gpu_hours", "Idle while waited for"))
_SPLIT = (
    "GPU-hours that jobs held in the period, by what became of these jobs. Reserved, unused: GPUs"
    " times (limit - wall time) of completed jobs; no part of GPU-hours."
)
_IDLE_MEANS = (
    " Idle while waited for: GPUs free in a slot of time in which jobs waited for that type, at"
    " most as many as were waited for; also while room was kept for a large job."
)


def split(report: CapacityReport, dimension: Dimension) -> ReportTable:
    """GPU-hours by one dimension, the largest first."""
    total = report.hours.allocated
    idle = _IDLE if dimension is Dimension.GPU_TYPE else ()
    return ReportTable(
        name=f"by-{dimension.value.replace('_', '-')}",
        title=f"GPU-hours by {_lower(BY[dimension])}",
        definition=_SPLIT + (_IDLE_MEANS if idle else ""),
        evidence=MEASURED,
        columns=(
            Column(dimension.value, BY[dimension], ColumnKind.NAME),
            Column("jobs", "Jobs", ColumnKind.COUNT),
            Column("gpu_hours", "GPU-hours"),
            Column("share", "Share", ColumnKind.SHARE),
            *_HOURS,
            Column("unused_gpu_hours", "Reserved, unused"),
            *idle,
        ),
        rows=tuple(
            _split_row(found, total)[: 5 + len(_HOURS) + len(idle)]
            for found in report.splits.get(dimension, ())
        ),
    )


def use(report: CapacityReport) -> ReportTable:
    """GPU-hours by slot of time."""
    return ReportTable(
        name="use",
        title="GPU-hours over time",
        definition=f"{_OUTCOMES} Waiting: GPUs that submitted jobs waited for, mean of the slot.",
        evidence=MEASURED,
        columns=(
            Column("start_utc", "From (UTC)", ColumnKind.MOMENT),
            *_HOURS,
            Column("capacity_gpu_hours", "Capacity"),
            Column("waiting_gpus", "GPUs waited for"),
        ),
        rows=tuple((u.start_s, *_hours(u.hours), u.capacity, u.waiting_gpus) for u in report.use),
    )


def waits(report: CapacityReport) -> ReportTable:
    """From submission to start."""
    return ReportTable(
        name="waits",
        title="Wait by size of job",
        definition="From submission to start, of the jobs that started in the period.",
        evidence=MEASURED,
        columns=(
            Column("gpus", "GPUs of the job", ColumnKind.NAME),
            Column("jobs", "Jobs", ColumnKind.COUNT),
            Column("median_wait_s", "Median", ColumnKind.DURATION),
            Column("p95_wait_s", "95 % within", ColumnKind.DURATION),
            Column("longest_wait_s", "Longest", ColumnKind.DURATION),
        ),
        rows=tuple((w.size, w.jobs, w.median_s, w.p95_s, w.longest_s) for w in report.waits),
    )


def limits(report: CapacityReport) -> ReportTable:
    """Time limits, by who set them."""
    return ReportTable(
        name="limits",
        title="Time limits",
        definition=(
            "Accuracy: sum of wall time over sum of requested wall time (XDMoD's"
            " wall_time_accuracy); 100 % is exact. Unused: GPUs times (limit - wall time) of"
            " completed jobs, which backfill could not plan with."
        ),
        evidence=MEASURED,
        columns=(
            Column("limit_by", "Limit set by", ColumnKind.NAME),
            Column("jobs", "Jobs", ColumnKind.COUNT),
            Column("requested_hours", "Hours requested"),
            Column("wall_time_accuracy", "Accuracy", ColumnKind.SHARE),
            Column("killed_jobs", "Killed by it", ColumnKind.COUNT),
            Column("killed_gpu_hours", "GPU-hours killed"),
            Column("unused_gpu_hours", "GPU-hours reserved, unused"),
        ),
        rows=tuple(
            (
                "not known" if x.by is None else x.by.value,
                x.jobs,
                x.requested_hours,
                x.accuracy,
                x.killed,
                x.killed_gpu_hours,
                x.unused_gpu_hours,
            )
            for x in report.limits
        ),
    )


def predictions(report: CapacityReport) -> ReportTable:
    """How right predictions were."""
    return ReportTable(
        name="predictions",
        title="How right predictions were",
        definition=(
            "Error: |predicted - measured| / measured, of the time of a step where the job reported"
            " it, else of the run. Within bound: share of jobs not above their predicted upper"
            " bound; it should be near the level."
        ),
        evidence="Predictions made before the jobs ran, against what was measured.",
        columns=(
            Column("model", "Model", ColumnKind.NAME),
            Column("jobs", "Jobs", ColumnKind.COUNT),
            Column("mean_error", "Mean error", ColumnKind.SHARE),
            Column("median_error", "Median error", ColumnKind.SHARE),
            Column("coverage", "Within bound", ColumnKind.SHARE),
            Column("level", "Level", ColumnKind.SHARE),
        ),
        rows=tuple(
            (p.key, p.jobs, p.mean_error, p.median_error, p.coverage, p.level)
            for p in report.predictions
        ),
    )


def tensor_cores(report: CapacityReport) -> ReportTable:
    """What GPUs with tensor cores computed in."""
    return ReportTable(
        name="tensor-cores",
        title="FP32 work on GPUs with tensor cores",
        definition=(
            "GPU-hours on GPUs with tensor cores: of jobs that computed in FP32, which leaves those"
            " idle, in a lower precision, or in one that is not known."
        ),
        evidence="Precision as the job stated it or as it was identified; hours measured.",
        columns=(
            Column("gpu_type", "GPU type", ColumnKind.NAME),
            Column("fp32_gpu_hours", "FP32"),
            Column("low_precision_gpu_hours", "Lower precision"),
            Column("unknown_gpu_hours", "Not known"),
        ),
        rows=tuple(
            (t.gpu_type, t.fp32_hours, t.low_precision_hours, t.unknown_hours)
            for t in report.tensor_cores
        ),
    )


def set_aside(report: CapacityReport) -> ReportTable:
    """Jobs that count nowhere."""
    return ReportTable(
        name="set-aside",
        title="Jobs that are left out",
        definition=(
            "Records that could not be counted, waiting jobs that could not be placed, and why; the"
            " example is one job's number."
        ),
        evidence=MEASURED,
        columns=(
            Column("reason", "Reason", ColumnKind.TEXT),
            Column("jobs", "Jobs", ColumnKind.COUNT),
            Column("example", "Example", ColumnKind.NAME),
        ),
        rows=tuple((s.reason, s.jobs, s.example) for s in report.origin.set_aside),
    )


def _split_row(found: Share, total: float) -> tuple[Value, ...]:
    allocated = found.hours.allocated
    part = allocated / total if total else None
    return (
        found.key,
        found.jobs,
        allocated,
        part,
        *_hours(found.hours),
        found.unused_gpu_hours,
        found.idle_gpu_hours,
        found.idle_wanted_gpu_hours,
    )


def _hours(hours: GpuHours) -> tuple[float, ...]:
    return (
        hours.completed,
        hours.running,
        hours.cancelled,
        hours.failed,
        hours.timed_out,
        hours.preempted,
    )


def _lower(label: str) -> str:
    return label if label.startswith("GPU") else label.lower()
