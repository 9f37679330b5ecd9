"""What a service counts for Prometheus, and the gauges that all services show.

Drift is what the last ``precision-time drift --snapshot`` found, read at each scrape, so that
daemons neither compute it nor have to be told. Needs prometheus_client, which the extras of the
daemons bring.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ..errors import ArtifactError
from ..site.drift.snapshot import Snapshot, read_snapshot

LABELS = ("cluster", "gpu", "framework", "model")
# By the field of a StreamState.
FIGURES = {
    "coverage": "Share of runs below their told 95 % quantile.",
    "bias": "Median share by which runs took longer than predicted.",
    "alarm": "1 since runs are slower than before, -1 faster, else 0.",
    "shift": "Share by which runs take longer since the alarm.",
}
_log = logging.getLogger(__name__)


class DriftCollector(Collector):
    """Gauges of every stream; without a snapshot, or with one not to be trusted, none."""

    def __init__(self, prefix: str) -> None:
        self._prefix, self._refused = prefix, ""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One family a figure; ``model`` is empty for all models of a stack and GPU."""
        found = self._read()
        streams = [] if found is None else found.streams
        for name, about in FIGURES.items():
            family = GaugeMetricFamily(f"{self._prefix}_drift_{name}", about, labels=LABELS)
            for one in streams:
                if (value := getattr(one, name)) is not None:
                    family.add_metric([getattr(one, label) for label in LABELS], value)
            yield family
        written = GaugeMetricFamily(
            f"{self._prefix}_drift_written_timestamp_seconds", "When drift was last computed."
        )
        if found is not None:
            written.add_metric((), found.written_s)
        yield written

    def _read(self) -> Snapshot | None:
        try:
            return read_snapshot()
        except ArtifactError as error:
            if str(error) != self._refused:
                _log.warning("drift is not shown: %s", error)
                self._refused = str(error)
            return None


class ServiceMetrics:
    """Metrics in a registry of their own, all of whose names begin with ``prefix``."""

    def __init__(self, prefix: str) -> None:
        self.registry = CollectorRegistry()
        self._prefix = prefix
        self._predictor = Info(
            f"{prefix}_predictor", "The predictor in use.", registry=self.registry
        )
        self.registry.register(DriftCollector(prefix))

    def predictor(self, version: str) -> None:
        """Name the predictor in use."""
        self._predictor.info({"version": version})

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Show a figure at each scrape."""
        Gauge(f"{self._prefix}_{name}", text, registry=self.registry).set_function(value)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{self._prefix}_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(
            f"{self._prefix}_{name}", text, labels, buckets=buckets, registry=self.registry
        )
