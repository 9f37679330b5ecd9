"""What the daemon counts for Prometheus."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address

from prometheus_client import CollectorRegistry, start_http_server

from predictor.service.metrics import ServiceMetrics

from .connection import Closing, ListenError
from .decider_child import ChildAnswer, Ending
from .views import Snapshots

_log = logging.getLogger(__name__)


class MetricsServer:
    """Serves a registry on ``host:port``, in threads of its own.

    Raises ListenError. A host that is not the loopback is served with a warning in the log.
    """

    def __init__(self, address: str, registry: CollectorRegistry) -> None:
        host, colon, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not (colon and host and port.isdecimal() and int(port) < 2**16):
            raise ListenError(f"invalid daemon.metrics={address!r}; expected host:port or null")
        local = host == "localhost"
        with suppress(ValueError):
            local = local or ip_address(host).is_loopback
        if not local:
            text = "metrics are served on %s, to whoever reaches it: 127.0.0.1 is safer"
            _log.warning(text, address)
        try:
            self._server, self._thread = start_http_server(int(port), host, registry)
        except OSError as error:
            raise ListenError(f"daemon.metrics={address!r}: {error.strerror or error}") from None

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


PREFIX = "precision_time_slurm"
SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.64, 2.56)


class DaemonMetrics(ServiceMetrics):
    """What is counted of requests, limits, connections and reloads."""

    def __init__(self) -> None:
        super().__init__(PREFIX)
        self._requests = self._counter("requests", "Requests.", "outcome")
        self._reasons = self._counter("decisions", "Decisions by reason of their limit.", "reason")
        self._limits = self._counter("limits_set", "Time limits set.", "gpu", "tier")
        self.closed = self._counter("connections_closed", "Connections we ended.", "why")
        self.reloads = self._counter("reloads", "Reloads.", "outcome")
        self.reconciled = self._counter(
            "jobs_reconciled", "Pending jobs made good after their submit.", "outcome"
        )
        self._seconds = self._histogram(
            "answer_seconds", "From the last byte of a request to its answer.", SECONDS
        )
        for why in Closing:
            self.closed.labels(why)

    def answered(self, found: ChildAnswer, duration_s: float) -> None:
        """Count one answer."""
        self._requests.labels(found.ending.value).inc()
        if found.ending is Ending.FINISHED_LATE:
            return
        self._seconds.observe(duration_s)
        said = found.words
        self._reasons.labels(said.get("reason", "none")).inc()
        if "limit" in said:
            self._limits.labels(said.get("gpu", "none"), said.get("tier", "none")).inc()

    def watch_snapshots(self, snapshots: Callable[[], Snapshots]) -> None:
        """Show the age and the failures of the view of Slurm at each scrape."""
        self.watch("snapshot_age_seconds", "Age of the view of Slurm.", lambda: snapshots().age_s)
        self.watch(
            "snapshot_failures",
            "Views of Slurm that failed since start.",
            lambda: snapshots().failures,
        )
