"""Connections: uvicorn's own protocol, with limits of time, size and number around it.

uvicorn lets go of idle connections, but waits for ever for a request that never begins or never
ends. `ConnectionGuard.protocol` is given to it as the HTTP protocol and passes everything on;
`ConnectionGuard.around` the application tells each connection where its request stands.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..config import Server
from ..errors import ConfigError

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
                    connection.wait(None)
                return message

            connection.asked()
            try:
                await app(scope, received, send)
            finally:
                connection.wait(None)  # from now on uvicorn counts the connection as idle
                connection.busy = False

        return guarded

    def make_room(self) -> None:
        """Where there are too many connections, end the one that has been quiet for longest."""
        if len(self.open) >= MAX_CONNECTIONS:
            quiet = [connection for connection in self.open if not connection.busy]
            oldest = min(quiet or self.open, key=lambda connection: connection.since)
            oldest.end("too many connections")


class GuardedConnection(asyncio.Protocol):
    """Passes a connection on to uvicorn, until its client takes too long or sends too much."""

    def __init__(self, guard: ConnectionGuard, **given: Any) -> None:
        self._guard = guard
        inner: Any = HttpToolsProtocol(**given | {"app_state": {"connection": self}})
        self._inner = inner
        for passed_on in ("eof_received", "pause_writing", "resume_writing"):
            setattr(self, passed_on, getattr(inner, passed_on))
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
        self.wait(SILENT_S, "nothing sent")
        self._inner.connection_made(self._transport)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on; from the first of a request its time runs."""
        if self._transport.is_closing():
            return
        if not self.busy:
            if not self._unasked_bytes:
                self.wait(REQUEST_S, "slow request")
            self._unasked_bytes += len(data)
        self._inner.data_received(data)
        if self._unasked_bytes > MAX_HEAD_BYTES:
            self._loop.call_soon(self._check_head)  # after the application was asked, if it was

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self.wait(None)
        self._guard.open.discard(self)
        self._inner.connection_lost(exc)

    def asked(self) -> None:
        """The application has the head of a request; its body may still be on its way."""
        self.busy, self._unasked_bytes, self.since = True, 0, time.monotonic()
        if self._timer is None:
            self.wait(REQUEST_S, "slow request")

    def wait(self, at_most_s: float | None, why: str = "") -> None:
        """From now on wait for so long; None for as long as it takes."""
        if self._timer is not None:
            self._timer.cancel()
        late = self._loop.call_later
        self._timer = None if at_most_s is None else late(at_most_s, self.end, why)

    def end(self, why: str) -> None:
        """Drop the connection at once."""
        self._guard.closed(why)
        self._guard.open.discard(self)
        self._transport.abort()

    def _check_head(self) -> None:
        if not self.busy and self._unasked_bytes and not self._transport.is_closing():
            self.end("large head")


class Certificates:
    """The pair of a configuration; ``context`` serves the newest, also after `reload`.

    Raises ConfigError naming the files where the first pair cannot be used.
    """

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None = None) -> None:
        self._certificate, self._key, self._client_ca = certificate, key, client_ca
        self.context = self._newest = self._read()
        self.context.sni_callback = self._choose

    @property
    def files(self) -> tuple[Path, ...]:
        """The files to watch."""
        given = (self._certificate, self._key, self._client_ca)
        return tuple(path for path in given if path is not None)

    async def reload(self) -> None:
        """Read the files anew; raises ConfigError, and keeps the old pair, where that fails."""
        self._newest = self._read()

    def serve(self, config: object, default: object) -> ssl.SSLContext:
        """The context, as uvicorn asks for it."""
        return self.context

    def _choose(self, handshake: ssl.SSLObject, name: str | None, first: ssl.SSLContext) -> None:
        """Called at each ClientHello, with or without a server name in it."""
        handshake.context = self._newest

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # A resumed session would not be checked against a new client CA.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
        except (OSError, ssl.SSLError) as error:
            pair = f"server.certificate={self._certificate} and server.key={self._key}"
            raise ConfigError(f"{pair} cannot be used together: {error}") from None
        if self._client_ca is not None:
            self._ask_clients(context, self._client_ca)
        return context

    def _ask_clients(self, context: ssl.SSLContext, client_ca: Path) -> None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"server.client_ca={client_ca} cannot be used: {error}") from None


def certificates_of(server: Server) -> Certificates | None:
    """The certificates of a configuration, None where it serves without TLS."""
    if server.certificate is None or server.key is None:
        return None
    return Certificates(server.certificate, server.key, server.client_ca)


def _no_password() -> str:
    """Called for an encrypted key, where OpenSSL would ask at the terminal."""
    raise ssl.SSLError("the key is encrypted")
