"""The small server that metrics are scraped from."""

from __future__ import annotations

import logging
import os
import socket
import socketserver
import stat
import threading
from ipaddress import ip_address
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from .listen import ListenError, check_directory

UNIX = "unix:"
SLOW_READER_S = 2.0
_log = logging.getLogger(__name__)


class MetricsServer:
    """Serves a registry on ``host:port`` or ``unix:/path``, one reader at a time.

    Raises ListenError. A host that is not the loopback is served with a warning in the log.
    """

    def __init__(self, address: str, registry: CollectorRegistry) -> None:
        self._path = Path(address.removeprefix(UNIX)) if address.startswith(UNIX) else None
        try:
            self._server = _tcp(address) if self._path is None else _unix(self._path)
        except OSError as error:
            raise ListenError(f"daemon.metrics={address!r}: {error.strerror or error}") from None
        self._server.set_app(make_wsgi_app(registry))
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port, also where 0 was asked for."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


class _Quiet(WSGIRequestHandler):
    timeout = SLOW_READER_S

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: scrapes are not events."""

    def address_string(self) -> str:
        return "local"


class _Server(WSGIServer):
    def server_bind(self) -> None:
        """Bind without a look-up of our host's name."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", 0
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:
        _log.debug("a metrics reader went away", exc_info=True)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _UnixServer(_Server):
    address_family = socket.AF_UNIX
    allow_reuse_address = False

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        """A request, with the address of a peer that has none."""
        connected, _ = self.socket.accept()
        return connected, ("local", 0)


def _tcp(address: str) -> _Server:
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isdecimal() and int(port) < 2**16):
        raise ListenError(
            f"daemon.metrics={address!r} is not possible: host:port or unix:/path are accepted"
        )
    if not _loopback(host):
        _log.warning("metrics are served on %s, to whoever reaches it: 127.0.0.1 is safer", address)
    return (_Server6 if ":" in host else _Server)((host, int(port)), _Quiet)


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _unix(path: Path) -> _Server:
    check_directory(path.parent)
    if path.exists() or path.is_symlink():
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ListenError(f"{path} is not a socket: it is left as it is")
        path.unlink()
    umask = os.umask(0o117)  # readable by our group, for a scraper in it
    try:
        return _UnixServer(str(path), _Quiet)  # type: ignore[arg-type]
    finally:
        os.umask(umask)
