"""Drift as Prometheus gauges: what the last ``precision-time drift --snapshot`` found.

Read at each scrape, so that daemons neither compute it nor have to be told. Needs
prometheus_client, which the extras of the daemons bring.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ...errors import ArtifactError
from .snapshot import Snapshot, StreamState, read_snapshot

LABELS = ("cluster", "gpu", "framework", "model")
_log = logging.getLogger(__name__)


class DriftCollector(Collector):
    """Gauges of every stream; without a snapshot, or with one not to be trusted, none."""

    def __init__(self, prefix: str, home: Path | None = None) -> None:
        self._prefix = prefix
        self._home = home
        self._refused = ""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One family a figure; ``model`` is empty for all models of a stack and GPU."""
        found = self._read()
        coverage = self._family("coverage", "Share of runs below their told 95 % quantile.")
        bias = self._family("bias", "Median share by which runs took longer than predicted.")
        alarm = self._family("alarm", "1 since runs are slower than before, -1 faster, else 0.")
        shift = self._family("shift", "Share by which runs take longer since the alarm.")
        for one in () if found is None else found.streams:
            labels = _labels(one)
            alarm.add_metric(labels, one.alarm)
            shift.add_metric(labels, one.shift)
            if one.coverage is not None:
                coverage.add_metric(labels, one.coverage)
            if one.bias is not None:
                bias.add_metric(labels, one.bias)
        written = GaugeMetricFamily(
            f"{self._prefix}_drift_written_timestamp_seconds", "When drift was last computed."
        )
        if found is not None:
            written.add_metric((), found.written_s)
        yield from (coverage, bias, alarm, shift, written)

    def _family(self, name: str, text: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"{self._prefix}_drift_{name}", text, labels=LABELS)

    def _read(self) -> Snapshot | None:
        try:
            return read_snapshot(self._home)
        except ArtifactError as error:
            if str(error) != self._refused:
                _log.warning("drift is not shown: %s", error)
                self._refused = str(error)
            return None


def show_drift(registry: CollectorRegistry, prefix: str) -> None:
    """Add the gauges to what a scrape shows."""
    registry.register(DriftCollector(prefix))


def _labels(stream: StreamState) -> tuple[str, ...]:
    return stream.cluster, stream.gpu, stream.framework, stream.model
