"""What the daemon counts for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from predictor.service.metrics import ServiceMetrics

from .connection import Closing
from .records import Ending, Record
from .snapshots import Snapshots

PREFIX = "precision_time_slurm"
SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.64, 2.56)
MAX_VALUES = 200  # of a label that comes from the words of an answer


class DaemonMetrics(ServiceMetrics):
    """What is counted of requests, limits, connections and reloads."""

    def __init__(self) -> None:
        super().__init__(PREFIX)
        self._requests = self._counter("requests", "Requests.", "kind", "outcome")
        self._reasons = self._counter("decisions", "Decisions by reason of their limit.", "reason")
        self._limits = self._counter("limits_set", "Time limits set.", "gpu", "tier")
        self._closed = self._counter("connections_closed", "Connections we ended.", "why")
        self._reloads = self._counter("reloads", "Reloads.", "outcome")
        self._follow_ups = self._counter(
            "limits_followed", "Limits to change after a job was modified.", "outcome"
        )
        self._reconciled = self._counter(
            "jobs_reconciled", "Pending jobs made good after their submit.", "outcome"
        )
        self._seconds = self._histogram(
            "answer_seconds", "From the last byte of a request to its answer.", SECONDS
        )
        self._seen: dict[str, set[str]] = {}
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

    def reconciled(self, outcome: str) -> None:
        """Count one job that was made good after its submit."""
        self._reconciled.labels(outcome).inc()

    def watch_snapshots(self, snapshots: Callable[[], Snapshots]) -> None:
        """Show the age and the failures of the view of Slurm at each scrape."""
        self.watch("snapshot_age_seconds", "Age of the view of Slurm.", lambda: snapshots().age_s)
        self.watch(
            "snapshot_failures",
            "Views of Slurm that failed since start.",
            lambda: snapshots().failures,
        )

    def _known(self, label: str, value: str) -> str:
        """The value, or ``other`` where a label has too many."""
        seen = self._seen.setdefault(label, set())
        if value not in seen and len(seen) >= MAX_VALUES:
            return "other"
        seen.add(value)
        return value
