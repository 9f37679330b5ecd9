"""Connections: uvicorn's own protocol, with limits of time, size and number around it.

uvicorn lets go of idle connections, but waits for ever for a request that never begins or never
ends. `ConnectionGuard.protocol` is given to it as the HTTP protocol and passes everything on;
`ConnectionGuard.around` the application tells each connection where its request stands.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_CONNECTIONS = 512
MAX_HEAD_BYTES = 2**15
# kube-scheduler gives a call up to its httpTimeout (5 s by default), the API server a webhook up
# to 30 s.
SILENT_S = 10.0
REQUEST_S = 15.0

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


class ConnectionGuard:
    """The connections of one address; ``closed(why)`` hears of each that we end."""

    def __init__(self, closed: Callable[[str], None] = lambda why: None) -> None:
        self.closed = closed
        self.open: set[GuardedConnection] = set()

    def protocol(self, **given: Any) -> GuardedConnection:
        """The protocol of a new connection, made as uvicorn makes its own."""
        return GuardedConnection(self, **given)

    def around(self, app: Application) -> Application:
        """The application, whose connections are told of its requests."""

        async def guarded(scope: Message, receive: Receive, send: Send) -> None:
            connection: GuardedConnection = scope["state"]["connection"]

            async def received() -> Message:
                message = await receive()
                if not message.get("more_body", False):
                    connection.whole()
                return message

            connection.asked()
            try:
                await app(scope, received, send)
            finally:
                connection.answered()

        return guarded

    def make_room(self) -> None:
        """Where there are too many connections, end the one that has been quiet for longest."""
        if len(self.open) >= MAX_CONNECTIONS:
            quiet = [connection for connection in self.open if not connection.busy]
            min(quiet or self.open, key=lambda connection: connection.since).end(
                "too many connections"
            )


class GuardedConnection(asyncio.Protocol):
    """Passes a connection on to uvicorn, until its client takes too long or sends too much."""

    def __init__(self, guard: ConnectionGuard, **given: Any) -> None:
        self._guard = guard
        self._inner = HttpToolsProtocol(**given | {"app_state": {"connection": self}})
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._unasked_bytes = 0
        self.busy = False  # a request is with the application
        self.since = time.monotonic()  # its last request, or its beginning

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a place among the connections."""
        self._transport = cast(asyncio.Transport, transport)
        self._guard.make_room()
        self._guard.open.add(self)
        self._wait(SILENT_S, "nothing sent")
        self._inner.connection_made(self._transport)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on; from the first of a request its time runs."""
        if self._transport.is_closing():
            return
        if not self.busy:
            if not self._unasked_bytes:
                self._wait(REQUEST_S, "slow request")
            self._unasked_bytes += len(data)
        self._inner.data_received(data)
        if self._unasked_bytes > MAX_HEAD_BYTES:
            self._loop.call_soon(self._check_head)  # after the application was asked, if it was

    def eof_received(self) -> None:
        """The client sends no more."""
        self._inner.eof_received()

    def pause_writing(self) -> None:
        """The client does not read."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self._stop_timer()
        self._guard.open.discard(self)
        self._inner.connection_lost(exc)

    def asked(self) -> None:
        """The application has the head of a request; its body may still be on its way."""
        self.busy, self._unasked_bytes, self.since = True, 0, time.monotonic()
        if self._timer is None:
            self._wait(REQUEST_S, "slow request")

    def whole(self) -> None:
        """The application has the whole request."""
        self._stop_timer()

    def answered(self) -> None:
        """The application is done; from now on uvicorn counts the connection as idle."""
        self._stop_timer()
        self.busy = False

    def end(self, why: str) -> None:
        """Drop the connection at once."""
        self._guard.closed(why)
        self._guard.open.discard(self)
        self._transport.abort()

    def _check_head(self) -> None:
        if not self.busy and self._unasked_bytes and not self._transport.is_closing():
            self.end("large head")

    def _wait(self, at_most_s: float, why: str) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(at_most_s, self.end, why)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
