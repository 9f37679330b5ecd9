"""What the daemon counts for Prometheus."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app, start_http_server
from prometheus_client.exposition import ThreadingWSGIServer

from predictor.service.metrics import ServiceMetrics

from .connection import Closing, ListenError, bound, check_directory
from .decider_child import ChildAnswer, Ending
from .views import Snapshots

UNIX = "unix:"
GROUP = 0o660  # for a scraper in our group
_log = logging.getLogger(__name__)


class MetricsServer:
    """Serves a registry on ``host:port`` or ``unix:/path``, in threads of its own.

    Raises ListenError. A host that is not the loopback is served with a warning in the log.
    """

    def __init__(self, address: str, registry: CollectorRegistry) -> None:
        self._path = Path(address.removeprefix(UNIX)) if address.startswith(UNIX) else None
        if self._path is not None:
            check_directory(self._path.parent)
            self._server: WSGIServer = _UnixServer(bound(self._path, GROUP))
            self._server.set_app(make_wsgi_app(registry))
            serve = self._server.serve_forever
            self._thread = threading.Thread(target=serve, name="metrics", daemon=True)
            self._thread.start()
            return
        host, colon, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not (colon and host and port.isdecimal() and int(port) < 2**16):
            raise ListenError(
                f"invalid daemon.metrics={address!r}; expected host:port, unix:/path or null"
            )
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
        if self._path is not None:
            self._path.unlink(missing_ok=True)


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing: scrapes are not events."""


class _UnixServer(ThreadingWSGIServer):
    """The same server on a socket that is there already."""

    def __init__(self, listening: socket.socket) -> None:
        super().__init__(("localhost", 0), _Quiet, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.server_name, self.server_port = "localhost", 0
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        """A request, with the address of a peer that has none."""
        connected, _ = self.socket.accept()
        return connected, ("local", 0)


PREFIX = "precision_time_slurm"
SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.64, 2.56)


class DaemonMetrics(ServiceMetrics):
    """What is counted of requests, limits, connections and reloads."""

    def __init__(self) -> None:
        super().__init__(PREFIX)
        self._requests = self._counter("requests", "Requests.", "outcome")
        self._reasons = self._counter("decisions", "Decisions by reason of their limit.", "reason")
        self._limits = self._counter("limits_set", "Time limits set.", "gpu", "tier")
        self._closed = self._counter("connections_closed", "Connections we ended.", "why")
        self._reloads = self._counter("reloads", "Reloads.", "outcome")
        self._reconciled = self._counter(
            "jobs_reconciled", "Pending jobs made good after their submit.", "outcome"
        )
        self._seconds = self._histogram(
            "answer_seconds", "From the last byte of a request to its answer.", SECONDS
        )
        for why in Closing:
            self._closed.labels(why)

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

    def closed(self, why: Closing) -> None:
        """Count one connection we ended."""
        self._closed.labels(why).inc()

    def reloaded(self, *, well: bool) -> None:
        """Count one reload."""
        self._reloads.labels("done" if well else "refused").inc()

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
