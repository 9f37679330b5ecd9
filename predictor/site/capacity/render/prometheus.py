"""A report as gauges in Prometheus's text format, for the textfile collector of node_exporter.

Labels are bounded: GPU types, partitions, precisions and outcomes, never users, jobs or models.
Units are seconds of one GPU, seconds and ratios.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict

from ....optional import needs
from ..report_data import CapacityReport, Dimension, GpuHours, Range, Share
from .text import shown

with needs("report"):
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector

PREFIX = "precision_time_capacity_"
MOST_VALUES = 50
OTHER = "other"
HOUR_S = 3600.0
_SPLITS = (Dimension.GPU_TYPE, Dimension.PARTITION, Dimension.PRECISION)
# The labels of a value, and the value; a value that is not known makes no sample.
Values = Iterable[tuple[Mapping[str, str], float | None]]


def prometheus_text(report: CapacityReport) -> str:
    """The gauges that have a value."""
    registry = CollectorRegistry()
    registry.register(_Report(report))
    return generate_latest(registry).decode()


def gauges(report: CapacityReport) -> Iterator[GaugeMetricFamily]:
    """Every gauge of a report."""
    yield from _whole(report)
    yield from _splits(report)
    yield from _limits(report)
    yield from _ahead(report)


class _Report(Collector):
    def __init__(self, report: CapacityReport) -> None:
        self._report = report

    def collect(self) -> Iterator[GaugeMetricFamily]:
        return (gauge for gauge in gauges(self._report) if gauge.samples)


def _gauge(name: str, about: str, values: Values, *, unit: float = 1.0) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(PREFIX + name, about)
    for labels, value in values:
        if value is not None:
            safe = {label: shown(text) for label, text in labels.items()}
            gauge.add_sample(gauge.name, safe, value * unit)
    return gauge


def _one(name: str, about: str, value: float | None, *, unit: float = 1.0) -> GaugeMetricFamily:
    return _gauge(name, about, [({}, value)], unit=unit)


def _whole(report: CapacityReport) -> Iterator[GaugeMetricFamily]:
    yield _one("report_timestamp_seconds", "When the report was made.", report.made_s)
    yield _one("period_start_timestamp_seconds", "Begin of its period.", report.period.since_s)
    yield _one("period_end_timestamp_seconds", "End of its period.", report.period.until_s)
    yield _one("sample_data", "1 where the jobs were generated.", float(report.origin.sample))
    yield _one("jobs", "Jobs that were read.", report.origin.jobs)
    yield _one("available_gpu_seconds", "All GPUs times the period.", report.capacity, unit=HOUR_S)
    yield _one("idle_gpu_seconds", "GPU time that no job held.", report.idle, unit=HOUR_S)
    about = "GPU time that jobs held, by what became of them."
    yield _gauge("gpu_seconds", about, _outcomes(report.hours, {}), unit=HOUR_S)
    waits = (
        ({"gpus": wait.size, "quantile": quantile}, value)
        for wait in report.waits
        for quantile, value in (
            ("0.5", wait.median_s),
            ("0.95", wait.p95_s),
            ("1", wait.longest_s),
        )
    )
    yield _gauge("wait_seconds", "From submission to start, by GPUs of the job.", waits)


def _splits(report: CapacityReport) -> Iterator[GaugeMetricFamily]:
    for dimension in _SPLITS:
        name, shares = dimension.value, report.splits.get(dimension, ())
        held = (s for key, hours in _bounded(shares) for s in _outcomes(hours, {name: key}))
        unused = [({name: share.key}, share.unused_gpu_hours) for share in shares[:MOST_VALUES]]
        about = f"GPU time that jobs held, by {name} and outcome."
        yield _gauge(f"{name}_gpu_seconds", about, held, unit=HOUR_S)
        about = f"GPU time reserved by completed jobs and not used, by {name}."
        yield _gauge(f"{name}_unused_gpu_seconds", about, unused, unit=HOUR_S)
    types = report.splits.get(Dimension.GPU_TYPE, ())[:MOST_VALUES]
    yield _gauge(
        "gpu_type_idle_gpu_seconds",
        "GPU time that no job held, of types whose number is known.",
        [({"gpu_type": one.key}, one.idle_gpu_hours) for one in types],
        unit=HOUR_S,
    )
    yield _gauge(
        "gpu_type_idle_wanted_gpu_seconds",
        "GPU time that no job held while jobs waited for that type.",
        [({"gpu_type": one.key}, one.idle_wanted_gpu_hours) for one in types],
        unit=HOUR_S,
    )
    computed = (
        ({"gpu_type": one.gpu_type, "computed_in": kind}, hours)
        for one in report.tensor_cores[:MOST_VALUES]
        for kind, hours in (
            ("fp32", one.fp32_hours),
            ("lower", one.low_precision_hours),
            ("unknown", one.unknown_hours),
        )
    )
    about = "GPU time on GPUs with tensor cores, by what was computed in."
    yield _gauge("tensor_core_gpu_seconds", about, computed, unit=HOUR_S)


def _limits(report: CapacityReport) -> Iterator[GaugeMetricFamily]:
    by = [({"by": "unknown" if x.by is None else x.by.value}, x) for x in report.limits]
    about = "Wall time over requested wall time, by who set limits."
    yield _gauge("limit_accuracy_ratio", about, [(b, x.accuracy) for b, x in by])
    about = "Jobs killed by their limit."
    yield _gauge("limit_killed_jobs", about, [(b, x.killed) for b, x in by])
    about = "GPU time reserved by completed jobs and not used."
    unused = [(b, x.unused_gpu_hours) for b, x in by]
    yield _gauge("limit_unused_gpu_seconds", about, unused, unit=HOUR_S)
    about = "Wall time over requested wall time."
    yield _one("wall_time_accuracy_ratio", about, report.wall_time_accuracy)
    jobs = sum(p.jobs for p in report.predictions)
    error = sum(p.jobs * p.mean_error for p in report.predictions) / jobs if jobs else None
    yield _one("prediction_error_ratio", "Mean error of predictions over completed jobs.", error)


def _ahead(report: CapacityReport) -> Iterator[GaugeMetricFamily]:
    saved: dict[str, float] = {}
    for found in report.opportunities:
        kind = found.kind.value
        saved[kind] = max(saved.get(kind, 0.0), found.saved_gpu_hours.median)
    about = "Largest single saving found, by kind of change."
    savings = [({"kind": kind}, hours) for kind, hours in saved.items()]
    yield _gauge("opportunity_gpu_seconds", about, savings, unit=HOUR_S)
    backlog = [({"gpu_type": b.gpu_type}, b) for b in report.backlog[:MOST_VALUES]]
    yield _gauge("backlog_jobs", "Jobs that wait.", [(labels, b.jobs) for labels, b in backlog])
    needed = (s for labels, b in backlog for s in _bounds(b.gpu_hours, labels))
    yield _gauge("backlog_gpu_seconds", "GPU time that waiting jobs need.", needed, unit=HOUR_S)
    unknown = [(labels, b.unknown_gpu_hours) for labels, b in backlog]
    about = "At most so much for jobs not predicted."
    yield _gauge("backlog_unpredicted_gpu_seconds", about, unknown, unit=HOUR_S)
    drained = (s for labels, b in backlog for s in _bounds(b.drain_s, labels))
    yield _gauge("drain_seconds", "When all that waits will have ended.", drained)
    forecasts = report.forecasts[:MOST_VALUES]
    coming = (
        sample
        for one in forecasts
        for sample in _bounds(
            next((week.expected for week in one.weeks if week.expected is not None), None),
            {"key": one.key},
        )
    )
    about = "GPU time that will be asked for in the first week to come."
    yield _gauge("forecast_week_gpu_seconds", about, coming, unit=HOUR_S)
    about = "First week whose demand exceeds its capacity."
    saturated = [({"key": one.key}, one.saturates_s) for one in forecasts]
    yield _gauge("saturation_timestamp_seconds", about, saturated)


def _outcomes(hours: GpuHours, labels: Mapping[str, str]) -> Values:
    return [({**labels, "outcome": name}, value) for name, value in asdict(hours).items()]


def _bounded(shares: tuple[Share, ...]) -> Iterator[tuple[str, GpuHours]]:
    yield from ((share.key, share.hours) for share in shares[:MOST_VALUES])
    rest = [asdict(share.hours) for share in shares[MOST_VALUES:]]
    if rest:
        yield OTHER, GpuHours(**{name: sum(one[name] for one in rest) for name in rest[0]})


def _bounds(found: Range | None, labels: Mapping[str, str]) -> Values:
    if found is None:
        return []
    return [({**labels, "bound": name}, value) for name, value in asdict(found).items()]
