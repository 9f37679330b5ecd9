"""A report as gauges in Prometheus's text format, for the textfile collector of node_exporter.

``prometheus.yaml`` says which. Labels are bounded: GPU types, partitions, precisions and outcomes,
never users, jobs or models. Units are seconds of one GPU, seconds and ratios.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from operator import attrgetter
from typing import Any

import yaml

from ....optional import needs
from ..report_data import CapacityReport, Dimension, GpuHours, Range, Share
from .text import shown
from .words import read, savings

with needs("report"):
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector

PREFIX = "precision_time_capacity_"
MOST_VALUES = 50
OTHER = "other"
HOUR_S = 3600.0
_GPU_TIME = "gpu_seconds"
# Rows that are no attribute of a report.
ROWS: Mapping[str, Callable[[CapacityReport], Iterable[object]]] = {
    **{
        dimension.value: lambda report, of=dimension: _bounded(report.splits.get(of, ()))  # type: ignore[misc]
        for dimension in (Dimension.GPU_TYPE, Dimension.PARTITION, Dimension.PRECISION)
    },
    "opportunities": savings,
}


def prometheus_text(report: CapacityReport) -> str:
    """The gauges that have a value."""
    registry = CollectorRegistry()
    registry.register(_Report(report))
    return generate_latest(registry).decode()


def gauges(report: CapacityReport) -> Iterator[GaugeMetricFamily]:
    """Every gauge of a report."""
    for told in yaml.load(read("prometheus.yaml"), yaml.CSafeLoader):
        yield _gauge(told, report)


class _Report(Collector):
    def __init__(self, report: CapacityReport) -> None:
        self._report = report

    def collect(self) -> Iterator[GaugeMetricFamily]:
        return (gauge for gauge in gauges(self._report) if gauge.samples)


def _gauge(told: Mapping[str, Any], report: CapacityReport) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(PREFIX + told["name"], told["about"])
    unit = HOUR_S if told["name"].endswith(_GPU_TIME) else 1.0
    for row in _rows(told.get("rows"), report):
        labels = {name: attrgetter(of)(row) for name, of in told.get("labels", {}).items()}
        [(name, values)] = told["by"].items() if "by" in told else [("", {"": told["value"]})]
        for each, of in values.items():
            for more, value in _bounds(attrgetter(of)(row)):
                texts = labels | ({name: each} if name else {}) | more
                gauge.add_sample(gauge.name, {k: shown(v) for k, v in texts.items()}, value * unit)
    return gauge


def _rows(of: str | None, report: CapacityReport) -> Iterable[Any]:
    if of is None:
        return (report,)
    if of in ROWS:
        return ROWS[of](report)
    rows: Sequence[object] = getattr(report, of)
    return rows[:MOST_VALUES]


def _bounded(shares: Sequence[Share]) -> Iterator[Share]:
    """The largest shares, and all others as one."""
    yield from shares[:MOST_VALUES]
    rest = [asdict(share.hours) for share in shares[MOST_VALUES:]]
    if rest:
        hours = GpuHours(**{name: sum(one[name] for one in rest) for name in rest[0]})
        unused = sum(share.unused_gpu_hours for share in shares[MOST_VALUES:])
        yield Share(key=OTHER, jobs=len(rest), hours=hours, unused_gpu_hours=unused)


def _bounds(value: Range | float | None) -> list[tuple[dict[str, str], float]]:
    """The labels and values of a figure; none where it is not known."""
    if isinstance(value, Range):
        return [({"bound": name}, bound) for name, bound in asdict(value).items()]
    return [] if value is None else [({}, float(value))]
