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
# A head may be one read of the socket larger.
MAX_HEAD_BYTES = 2**15
HANDSHAKE_S = 10.0
SWEEP_S = 1.0
# Beyond the time that idle connections are kept for, after which uvicorn ends them itself.
SPARE_S = 5.0


class Phase(Enum):
    """What a connection is at."""

    NEW = "nothing sent"
    RECEIVING = "slow request"
    ANSWERING = "slow reader"
    IDLE = "idle"


# Seconds in a phase. kube-scheduler gives a call up to its httpTimeout (5 s by default), the API
# server a webhook up to 30 s.
LIMITS_S = {Phase.NEW: 10.0, Phase.RECEIVING: 15.0, Phase.ANSWERING: 30.0}


class Connection(HttpToolsProtocol):
    """A connection that can tell its phase; heads of requests are limited in size."""

    def __init__(self, *, listener: Listener, **given: Any) -> None:
        super().__init__(**given)
        self._listener = listener
        self._head_bytes = 0
        self._seen: tuple[Phase, object] = (Phase.NEW, None)
        self.since = time.monotonic()  # the phase lasts at least since then

    @property
    def phase(self) -> Phase:
        """What it is at, by the request that came last."""
        if self.scope is None:
            return Phase.NEW
        if self._within_head or self.cycle.more_body:
            return Phase.RECEIVING
        if self.cycle.response_complete and not self.transport.get_write_buffer_size():
            return Phase.IDLE
        return Phase.ANSWERING

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a place among the connections, or one of an idle one."""
        self._listener.make_room()
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Parse, unless the head of a request gets too large."""
        if self.parser is None or self.transport.is_closing():
            return
        self._head_bytes = self._head_bytes + len(data) if self._within_head else 0
        if self._head_bytes > MAX_HEAD_BYTES:
            self.end("large head")
        else:
            super().data_received(data)

    def late(self, now: float, idle_s: float) -> bool:
        """True where one request has been in one phase for too long; asked from time to time."""
        phase = self.phase
        if self._seen[0] is not phase or self._seen[1] is not self.cycle:
            self._seen, self.since = (phase, self.cycle), now
        return now - self.since > LIMITS_S.get(phase, idle_s)

    def end(self, why: str) -> None:
        """Drop the connection at once."""
        self._listener.closed(why)
        self.transport.abort()

    @property
    def _within_head(self) -> bool:
        """True from the first byte of a request until its head is whole."""
        begun, whole = self.scope, self.cycle
        return begun is not None and (whole is None or whole.scope is not begun)


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
        self._idle_s = keep_alive_s + SPARE_S
        self.closed = closed
        self._config = uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=round(keep_alive_s),
        )
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
        if len(self._state.connections) < MAX_CONNECTIONS:
            return
        open_ = [c for c in self.connections if not c.transport.is_closing()]
        if len(open_) >= MAX_CONNECTIONS:
            idle = [c for c in open_ if c.phase in (Phase.NEW, Phase.IDLE)]
            min(idle or open_, key=lambda c: c.since).end("too many connections")

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
                if connection.late(now, self._idle_s):
                    connection.end(connection.phase.value)
            await asyncio.sleep(SWEEP_S)


def bind(host: str, port: int, field: str) -> socket.socket:
    """A socket bound to an address, ::1 or :: for IPv6; raises ConfigError naming the field."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server(
            (host, port),
            family=family,
            backlog=BACKLOG,
            dualstack_ipv6=family == socket.AF_INET6 and socket.has_dualstack_ipv6(),
        )
    except OSError as error:
        raise ConfigError(f"{field}: {host}:{port} cannot be listened on: {error}") from None
