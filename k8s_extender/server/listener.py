"""Sockets and connections: uvicorn's protocol, with limits of time, size and number."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from email.utils import formatdate
from enum import Enum
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from ..errors import ConfigError
from .app import App

BACKLOG = 1024
MAX_CONNECTIONS = 512
MAX_HEAD_BYTES = 2**15
HANDSHAKE_S = 10.0
SWEEP_S = 1.0
CLOSING_S = 3.0


class Phase(Enum):
    """What a connection is at."""

    NEW = "nothing sent"
    RECEIVING = "slow request"
    ANSWERING = "slow reader"
    IDLE = "idle"


# Seconds in a phase; idle connections are uvicorn's to end. kube-scheduler gives a call up to
# its httpTimeout (5 s by default), the API server a webhook up to 30 s.
LIMITS_S = {Phase.NEW: 10.0, Phase.RECEIVING: 15.0, Phase.ANSWERING: 30.0}


class Connection(HttpToolsProtocol):
    """A connection that knows its phase; heads of requests are limited in size."""

    def __init__(self, *, listener: Listener, **given: Any) -> None:
        super().__init__(**given)
        self._listener = listener
        self.phase = Phase.NEW
        self.since = time.monotonic()
        self._head_bytes: int | None = 0  # None while a body is read

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a place among the connections, or one of an idle one."""
        self._listener.make_room()
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Count what is not body yet, and parse."""
        if self.parser is None or self.transport.is_closing():
            return
        if self.phase in (Phase.NEW, Phase.IDLE):
            self._enter(Phase.RECEIVING)
        if self._head_bytes is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes is not None and self._head_bytes > MAX_HEAD_BYTES:
            self.end("large head")

    def on_headers_complete(self) -> None:
        """From here on the application limits the size."""
        self._head_bytes = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._head_bytes = 0
        if self.phase is Phase.RECEIVING:
            self._enter(Phase.ANSWERING)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The answer is on its way; its reader may still be slow."""
        self._enter(Phase.ANSWERING if self.transport.get_write_buffer_size() else Phase.IDLE)
        super().on_response_complete()

    def late(self, now: float) -> bool:
        """True where the phase has taken too long."""
        if self.phase is Phase.ANSWERING and self._answered():
            self._enter(Phase.IDLE)
        return now - self.since > LIMITS_S.get(self.phase, float("inf"))

    def end(self, why: str) -> None:
        """Drop the connection at once."""
        self._listener.closed(why)
        self.transport.abort()

    def _answered(self) -> bool:
        done = self.cycle is None or self.cycle.response_complete
        return done and not self.transport.get_write_buffer_size()

    def _enter(self, phase: Phase) -> None:
        self.phase, self.since = phase, time.monotonic()


class Listener:
    """One address that an application is served on; ``closed(why)`` hears of connections ended."""

    def __init__(
        self,
        app: App,
        bound: socket.socket,
        *,
        keep_alive_s: float,
        context: ssl.SSLContext | None = None,
        closed: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._bound = bound
        self._context = context
        self.closed = closed
        self._config = uvicorn.Config(
            app, http=Connection, ws="none", lifespan="off", log_config=None, access_log=False,
            proxy_headers=False, server_header=False, timeout_keep_alive=round(keep_alive_s),
        )  # fmt: skip
        self._config.load()
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._sweeping: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port, also where the configuration said 0."""
        return int(self._bound.getsockname()[1])

    @property
    def connections(self) -> frozenset[Connection]:
        """The connections that are open."""
        return frozenset(c for c in self._state.connections if isinstance(c, Connection))

    async def start(self) -> None:
        """Accept connections."""
        self._server = await asyncio.get_running_loop().create_server(
            self._connection,
            sock=self._bound,
            ssl=self._context,
            backlog=BACKLOG,
            ssl_handshake_timeout=None if self._context is None else HANDSHAKE_S,
        )
        self._sweeping = asyncio.create_task(self._sweep())

    async def stop(self, within_s: float) -> None:
        """Accept no more, let requests on their way end within a time, then close."""
        if self._server is not None:
            self._server.close()
        for connection in self.connections:
            connection.shutdown()
        until = time.monotonic() + within_s
        while self.connections and time.monotonic() < until:
            await asyncio.sleep(0.02)
        for connection in self.connections:
            connection.end("shutdown")
        if self._sweeping is not None:
            self._sweeping.cancel()

    def make_room(self) -> None:
        """Where there are too many connections, end the one that has been idle for longest."""
        connections = self.connections
        if len(connections) < MAX_CONNECTIONS:
            return
        idle = [c for c in connections if c.phase in (Phase.NEW, Phase.IDLE)]
        (min(idle or connections, key=lambda c: c.since)).end("too many connections")

    def _connection(self) -> Connection:
        return Connection(
            listener=self, config=self._config, server_state=self._state, app_state={}
        )

    async def _sweep(self) -> None:
        while True:
            date = formatdate(usegmt=True).encode()
            self._state.default_headers = [(b"date", date)]
            now = time.monotonic()
            for connection in self.connections:
                if connection.late(now):
                    connection.end(connection.phase.value)
            await asyncio.sleep(SWEEP_S)


def bind(host: str, port: int, field: str) -> socket.socket:
    """A socket bound to an address, ::1 or :: for IPv6; raises ConfigError naming the field."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server(
            (host, port), family=family, backlog=BACKLOG,
            dualstack_ipv6=family == socket.AF_INET6 and socket.has_dualstack_ipv6(),
        )  # fmt: skip
    except OSError as error:
        raise ConfigError(f"{field}: {host}:{port} cannot be listened on: {error}") from None
