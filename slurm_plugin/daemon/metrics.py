"""What is counted for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from predictor.site.drift.metrics import show_drift

from .connection import Closing
from .records import Ending, Record

PREFIX = "precision_time_slurm"
SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.64, 2.56)
MAX_VALUES = 200  # of a label that comes from the words of an answer


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """How fresh the view of Slurm is: its age in seconds (infinity before the first)."""

    age_s: float
    failures: int


class Metrics:
    """What is counted; ``registry`` is what a scrape shows."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = self._counter("requests", "Requests.", "kind", "outcome")
        self._reasons = self._counter("decisions", "Decisions by reason of their limit.", "reason")
        self._limits = self._counter("limits_set", "Time limits set.", "gpu", "tier")
        self._closed = self._counter("connections_closed", "Connections we ended.", "why")
        self._reloads = self._counter("reloads", "Reloads.", "outcome")
        self._follow_ups = self._counter(
            "limits_followed", "Limits to change after a job was modified.", "outcome"
        )
        self._seconds = Histogram(
            f"{PREFIX}_answer_seconds",
            "From the last byte of a request to its answer.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self._predictor = Info(
            f"{PREFIX}_predictor", "The predictor in use.", registry=self.registry
        )
        self._seen: dict[str, set[str]] = {}
        show_drift(self.registry, PREFIX)
        for why in Closing:
            self._closed.labels(why)

    def answered(self, record: Record) -> None:
        """Count one answer."""
        decided = record.decided
        self._requests.labels(decided.kind, record.ending.value).inc()
        if record.ending is Ending.FINISHED_LATE:
            return
        self._seconds.observe(record.duration_s)
        said = decided.words
        self._reasons.labels(self._known("reason", said.get("reason", "none"))).inc()
        if decided.answer.time_limit is not None:
            gpu, tier = (self._known(word, said.get(word, "none")) for word in ("gpu", "tier"))
            self._limits.labels(gpu, tier).inc()

    def closed(self, why: Closing) -> None:
        """Count one connection we ended."""
        self._closed.labels(why).inc()

    def reloaded(self, *, well: bool) -> None:
        """Count one reload."""
        self._reloads.labels("done" if well else "refused").inc()

    def followed(self, outcome: str) -> None:
        """Count one follow-up."""
        self._follow_ups.labels(outcome).inc()

    def predictor(self, version: str) -> None:
        """Name the predictor in use."""
        self._predictor.info({"version": version})

    def watch_snapshots(self, state: Callable[[], SnapshotState]) -> None:
        """Show the age and the failures of the view of Slurm at each scrape."""
        self._gauge("snapshot_age_seconds", "Age of the view of Slurm.", lambda: state().age_s)
        self._gauge(
            "snapshot_failures", "Views of Slurm that failed since start.", lambda: state().failures
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        Gauge(f"{PREFIX}_{name}", text, registry=self.registry).set_function(value)

    def _known(self, label: str, value: str) -> str:
        """The value, or ``other`` where a label has too many."""
        seen = self._seen.setdefault(label, set())
        if value not in seen and len(seen) >= MAX_VALUES:
            return "other"
        seen.add(value)
        return value
