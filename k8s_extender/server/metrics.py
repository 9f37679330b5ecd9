"""What is counted for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector

from predictor.site.drift.metrics import show_drift

PREFIX = "precision_time_k8s"
SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.004, 0.006, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0)
NODES = (1, 3, 10, 30, 100, 300, 1000, 3000, 10000)


class Metrics:
    """What is counted; ``registry`` is what a scrape shows. Labels take few values."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = self._counter("requests", "Requests.", "verb", "outcome")
        self._seconds = self._histogram(
            "request_duration_seconds", "From the whole request to its answer.", SECONDS, "verb"
        )
        self._nodes = self._histogram("request_nodes", "Nodes of a request.", NODES, "verb")
        self._refused = self._counter("nodes_refused", "Nodes refused.", "reason")
        self._predictions = self._counter("predictions", "Predictions.", "gpu", "tier")
        self._reloads = self._counter("reloads", "Files read anew.", "file", "outcome")
        self._closed = self._counter("connections_closed", "Connections we ended.", "why")
        self._predictor = Info(
            f"{PREFIX}_predictor", "The predictor in use.", registry=self.registry
        )
        self._by_verb: dict[tuple[str, str], tuple[Counter, Histogram, Histogram]] = {}
        show_drift(self.registry, PREFIX)

    def answered(self, verb: str, outcome: str, duration_s: float, nodes: int | None) -> None:
        """Count one decision, about a number of nodes."""
        requests, seconds, of_nodes = self._of_verb(verb, outcome)
        requests.inc()
        seconds.observe(duration_s)
        if nodes is not None:
            of_nodes.observe(nodes)

    def unread(self, verb: str, outcome: str) -> None:
        """Count one request that no decision came of."""
        self._requests.labels(verb, outcome).inc()

    def refused(self, reason: str, nodes: int) -> None:
        """Count nodes refused for one of the constant reasons."""
        self._refused.labels(reason).inc(nodes)

    def predicted(self, gpu: str, tier: str) -> None:
        """Count one prediction on a GPU of our table, or an unknown one."""
        self._predictions.labels(gpu, tier).inc()

    def reloaded(self, file: str, *, well: bool) -> None:
        """Count one file that was read anew."""
        self._reloads.labels(file, "done" if well else "refused").inc()

    def closed(self, why: str) -> None:
        """Count one connection we ended."""
        self._closed.labels(why).inc()

    def predictor(self, version: str) -> None:
        """Name the predictor in use."""
        self._predictor.info({"version": version})

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Show a figure at each scrape."""
        Gauge(f"{PREFIX}_{name}", text, registry=self.registry).set_function(value)

    def _of_verb(self, verb: str, outcome: str) -> tuple[Counter, Histogram, Histogram]:
        """The metrics of a verb, whose look-up by label takes longer than to count."""
        found = self._by_verb.get((verb, outcome))
        if found is None:
            requests = self._requests.labels(verb, outcome)
            found = (requests, self._seconds.labels(verb), self._nodes.labels(verb))
            self._by_verb[verb, outcome] = found
        return found

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(f"{PREFIX}_{name}", text, labels, buckets=buckets, registry=self.registry)
