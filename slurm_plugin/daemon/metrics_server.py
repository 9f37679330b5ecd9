"""Where metrics are scraped: prometheus_client's own server, on TCP or a Unix socket."""

from __future__ import annotations

import logging
import socket
import threading
from ipaddress import ip_address
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app, start_http_server
from prometheus_client.exposition import ThreadingWSGIServer

from .listen import ListenError, bound, check_directory

UNIX = "unix:"
GROUP = 0o660  # for a scraper in our group
_log = logging.getLogger(__name__)


class MetricsServer:
    """Serves a registry on ``host:port`` or ``unix:/path``, in threads of its own.

    Raises ListenError. A host that is not the loopback is served with a warning in the log.
    """

    def __init__(self, address: str, registry: CollectorRegistry) -> None:
        self._path = Path(address.removeprefix(UNIX)) if address.startswith(UNIX) else None
        try:
            served = _tcp(address, registry) if self._path is None else _unix(self._path, registry)
        except OSError as error:
            raise ListenError(f"daemon.metrics={address!r}: {error.strerror or error}") from None
        self._server, self._thread = served

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

    def address_string(self) -> str:
        return "local"


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


def _tcp(address: str, registry: CollectorRegistry) -> tuple[WSGIServer, threading.Thread]:
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isdecimal() and int(port) < 2**16):
        raise ListenError(
            f"invalid daemon.metrics={address!r}; expected host:port, unix:/path or null"
        )
    if not _loopback(host):
        _log.warning("metrics are served on %s, to whoever reaches it: 127.0.0.1 is safer", address)
    return start_http_server(int(port), host, registry)


def _unix(path: Path, registry: CollectorRegistry) -> tuple[WSGIServer, threading.Thread]:
    check_directory(path.parent)
    server = _UnixServer(bound(path, GROUP))
    server.set_app(make_wsgi_app(registry))
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    return server, thread


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
