"""A report as gauges in Prometheus's text format, for the textfile collector of node_exporter.

Labels are bounded: GPU types, partitions, precisions and outcomes, never users, jobs or models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..report_data import CapacityReport, Dimension, GpuHours, Range, Share
from .text import shown

PREFIX = "precision_time_capacity"
MOST_VALUES = 50
OTHER = "other"
_OUTCOMES = ("completed", "running", "cancelled", "failed", "timed_out", "preempted")
_SPLITS = (Dimension.GPU_TYPE, Dimension.PARTITION, Dimension.PRECISION)
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class GaugeSample:
    """One value of a metric."""

    value: float
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Metric:
    """A gauge and its help."""

    name: str
    help: str
    samples: tuple[GaugeSample, ...]


def prometheus_text(report: CapacityReport) -> str:
    """The gauges; those with no value are left out."""
    return "".join(_text(metric) for metric in metrics(report) if metric.samples)


def metrics(report: CapacityReport) -> tuple[Metric, ...]:
    """Every gauge of a report, in base units: seconds of one GPU, seconds, ratios."""
    return (*_whole(report), *_splits(report), *_waits(report), *_limits(report), *_ahead(report))


def _whole(report: CapacityReport) -> Iterable[Metric]:
    yield _one("report_timestamp_seconds", "When the report was made.", report.made_s)
    yield _one("period_start_timestamp_seconds", "Begin of its period.", report.period.since_s)
    yield _one("period_end_timestamp_seconds", "End of its period.", report.period.until_s)
    yield _one("sample_data", "1 where the jobs were generated.", float(report.origin.sample))
    yield _one("jobs", "Jobs that were read.", report.origin.jobs)
    yield _one("available_gpu_seconds", "All GPUs times the period.", _seconds(report.capacity))
    yield _one("idle_gpu_seconds", "GPU time that no job held.", _seconds(report.idle))
    yield Metric(
        "gpu_seconds",
        "GPU time that jobs held, by what became of them.",
        tuple(_outcomes(report.hours, {})),
    )


def _splits(report: CapacityReport) -> Iterable[Metric]:
    for dimension in _SPLITS:
        name, shares = dimension.value, report.splits.get(dimension, ())
        yield Metric(
            f"{name}_gpu_seconds",
            f"GPU time that jobs held, by {name} and outcome.",
            tuple(s for key, hours in _bounded(shares) for s in _outcomes(hours, {name: key})),
        )
        yield Metric(
            f"{name}_unused_gpu_seconds",
            f"GPU time reserved by completed jobs and not used, by {name}.",
            tuple(
                GaugeSample(share.unused_gpu_hours * HOUR_S, {name: share.key})
                for share in shares[:MOST_VALUES]
            ),
        )
    types = report.splits.get(Dimension.GPU_TYPE, ())[:MOST_VALUES]
    yield _of_types(
        "gpu_type_idle_gpu_seconds",
        "GPU time that no job held, of types whose number is known.",
        {t.key: t.idle_gpu_hours for t in types},
    )
    yield _of_types(
        "gpu_type_idle_wanted_gpu_seconds",
        "GPU time that no job held while jobs waited for that type.",
        {t.key: t.idle_wanted_gpu_hours for t in types},
    )
    yield Metric(
        "tensor_core_gpu_seconds",
        "GPU time on GPUs with tensor cores, by what was computed in.",
        tuple(
            GaugeSample(hours * HOUR_S, {"gpu_type": t.gpu_type, "computed_in": kind})
            for t in report.tensor_cores[:MOST_VALUES]
            for kind, hours in (
                ("fp32", t.fp32_hours),
                ("lower", t.low_precision_hours),
                ("unknown", t.unknown_hours),
            )
        ),
    )


def _waits(report: CapacityReport) -> Iterable[Metric]:
    yield Metric(
        "wait_seconds",
        "From submission to start, by GPUs of the job.",
        tuple(
            GaugeSample(value, {"gpus": wait.size, "quantile": quantile})
            for wait in report.waits
            for quantile, value in (
                ("0.5", wait.median_s),
                ("0.95", wait.p95_s),
                ("1", wait.longest_s),
            )
        ),
    )


def _limits(report: CapacityReport) -> Iterable[Metric]:
    by = [("unknown" if x.by is None else x.by.value, x) for x in report.limits]
    yield Metric(
        "limit_accuracy_ratio",
        "Wall time over requested wall time, by who set limits.",
        tuple(GaugeSample(x.accuracy, {"by": b}) for b, x in by if x.accuracy is not None),
    )
    yield Metric(
        "limit_killed_jobs",
        "Jobs killed by their limit.",
        tuple(GaugeSample(x.killed, {"by": b}) for b, x in by),
    )
    yield Metric(
        "limit_unused_gpu_seconds",
        "GPU time reserved by completed jobs and not used.",
        tuple(GaugeSample(x.unused_gpu_hours * HOUR_S, {"by": b}) for b, x in by),
    )
    yield _one(
        "wall_time_accuracy_ratio", "Wall time over requested wall time.", report.wall_time_accuracy
    )
    jobs = sum(p.jobs for p in report.predictions)
    error = sum(p.jobs * p.mean_error for p in report.predictions) / jobs if jobs else None
    yield _one("prediction_error_ratio", "Mean error of predictions over completed jobs.", error)


def _ahead(report: CapacityReport) -> Iterable[Metric]:
    saved: dict[str, float] = {}
    for found in report.opportunities:
        kind = found.kind.value
        saved[kind] = max(saved.get(kind, 0.0), found.saved_gpu_hours.median)
    yield Metric(
        "opportunity_gpu_seconds",
        "Largest single saving found, by kind of change.",
        tuple(GaugeSample(h * HOUR_S, {"kind": kind}) for kind, h in saved.items()),
    )
    backlog = report.backlog[:MOST_VALUES]
    yield Metric(
        "backlog_jobs",
        "Jobs that wait.",
        tuple(GaugeSample(b.jobs, {"gpu_type": b.gpu_type}) for b in backlog),
    )
    yield Metric(
        "backlog_gpu_seconds",
        "GPU time that waiting jobs need.",
        tuple(s for b in backlog for s in _range(b.gpu_hours, b.gpu_type, HOUR_S)),
    )
    yield Metric(
        "backlog_unpredicted_gpu_seconds",
        "At most so much for jobs not predicted.",
        tuple(GaugeSample(b.unknown_gpu_hours * HOUR_S, {"gpu_type": b.gpu_type}) for b in backlog),
    )
    yield Metric(
        "drain_seconds",
        "When all that waits will have ended.",
        tuple(s for b in backlog for s in _range(b.drain_s, b.gpu_type, 1.0)),
    )
    coming = [
        (f.key, next((w.expected for w in f.weeks if w.expected is not None), None))
        for f in report.forecasts[:MOST_VALUES]
    ]
    yield Metric(
        "forecast_week_gpu_seconds",
        "GPU time that will be asked for in the first week to come.",
        tuple(
            GaugeSample(getattr(found, bound) * HOUR_S, {"key": key, "bound": bound})
            for key, found in coming
            if found is not None
            for bound in ("low", "median", "high")
        ),
    )
    yield Metric(
        "saturation_timestamp_seconds",
        "First week whose demand exceeds its capacity.",
        tuple(
            GaugeSample(f.saturates_s, {"key": f.key})
            for f in report.forecasts[:MOST_VALUES]
            if f.saturates_s is not None
        ),
    )


def _one(name: str, about: str, value: float | None) -> Metric:
    return Metric(name, about, () if value is None else (GaugeSample(value, {}),))


def _of_types(name: str, text: str, hours: Mapping[str, float | None]) -> Metric:
    """Seconds of the GPU types whose hours are known."""
    known = ((key, h) for key, h in hours.items() if h is not None)
    return Metric(name, text, tuple(GaugeSample(h * HOUR_S, {"gpu_type": key}) for key, h in known))


def _outcomes(hours: GpuHours, labels: Mapping[str, str]) -> Iterable[GaugeSample]:
    for name in _OUTCOMES:
        yield GaugeSample(getattr(hours, name) * HOUR_S, {**labels, "outcome": name})


def _bounded(shares: tuple[Share, ...]) -> Iterable[tuple[str, GpuHours]]:
    yield from ((share.key, share.hours) for share in shares[:MOST_VALUES])
    rest = [share.hours for share in shares[MOST_VALUES:]]
    if rest:
        yield OTHER, GpuHours(**{n: sum(getattr(h, n) for h in rest) for n in _OUTCOMES})


def _range(found: Range | None, gpu_type: str, unit: float) -> Iterable[GaugeSample]:
    if found is not None:
        for bound in ("low", "median", "high"):
            yield GaugeSample(getattr(found, bound) * unit, {"gpu_type": gpu_type, "bound": bound})


def _seconds(hours: float | None) -> float | None:
    return None if hours is None else hours * HOUR_S


def _text(metric: Metric) -> str:
    name = f"{PREFIX}_{metric.name}"
    lines = [f"# HELP {name} {metric.help}\n", f"# TYPE {name} gauge\n"]
    return "".join(
        lines + [f"{name}{_labels(s.labels)} {float(s.value)!r}\n" for s in metric.samples]
    )


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return shown(value).replace("\\", r"\\").replace('"', r"\"")
