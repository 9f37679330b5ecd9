"""The ASGI application, and uvicorn's protocol with limits of time, size and number around it.

uvicorn lets go of idle connections, but waits for ever for a request that never begins or never
ends. `ConnectionGuard.protocol` is given to it as the HTTP protocol and passes everything on;
`ConnectionGuard.around` the application tells each connection where its request stands.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..errors import ConfigError, WireError

_log = logging.getLogger(__name__)

# What all bodies on their way may hold together, as a multiple of the largest body; those that are
# small are read in any case. 5,000 names take 66 kB.
BODIES_AT_ONCE = 4
SMALL_BYTES = 2**17

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]
JSON: Headers = ((b"content-type", b"application/json"),)


@dataclass(frozen=True, slots=True)
class HttpReply:
    """What goes back: ``close`` ends the connection after it."""

    status: int
    body: bytes
    headers: Headers = JSON
    close: bool = False


Handler = Callable[[bytes], bytes | Awaitable[bytes]]
Page = Callable[[], HttpReply]


@dataclass(eq=False, kw_only=True)
class ExtenderApp:
    """Answers POST by ``handlers`` and GET by ``pages``, both by path without the first slash.

    ``unread(path, outcome)`` hears of each request that no handler answered; ``draining`` says when
    clients are to come back on another connection. ``called_at`` is when the last call came, on
    the monotonic clock.
    """

    pages: Mapping[str, Page]
    handlers: Mapping[str, Handler] = field(default_factory=dict)
    max_body_bytes: int = 2**16
    unread: Callable[[str, str], None] = lambda path, outcome: None
    draining: Callable[[], bool] = lambda: False
    called_at: float = 0.0
    _held_bytes: int = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One request; a verb set with a leading slash is asked with two."""
        path: str = scope["path"].strip("/")
        reply = self._without_body(scope["method"], path, dict(scope["headers"]))
        if reply is None:
            reply = await self._called(path, receive)
        if reply is None:
            return
        headers = [*reply.headers, (b"content-length", b"%d" % len(reply.body))]
        if reply.close or self.draining():
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})

    def _without_body(
        self, method: str, path: str, headers: Mapping[bytes, bytes]
    ) -> HttpReply | None:
        """The reply to what is no call, or one whose body is not to be read; None for a call."""
        handled, page = path in self.handlers, self.pages.get(path)
        if not handled and page is None:
            known = (*self.handlers, *self.pages)
            return _error(404, f"expected one of {', '.join(f'/{p}' for p in known)}", close=True)
        allowed = ("POST",) if handled else ("GET", "HEAD")
        if method not in allowed:
            words = ", ".join(allowed)
            error = orjson.dumps({"error": f"expected {words}"})
            return HttpReply(405, error, (*JSON, (b"allow", words.encode())), close=True)
        if page is not None and not handled:
            return page()
        if b"transfer-encoding" in headers:
            return self._refused(path, 411, "expected a body with Content-Length")
        if headers.get(b"content-encoding", b"identity") != b"identity":
            return self._refused(path, 415, "expected a body without Content-Encoding")
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self.max_body_bytes:
            return self._refused(path, 413, f"expected at most {self.max_body_bytes} bytes")
        return None

    async def _called(self, path: str, receive: Receive) -> HttpReply | None:
        """The reply to a call; None where its sender has gone."""
        self.called_at = time.monotonic()
        chunks: list[bytes] = []
        held = 0
        try:
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    self.unread(path, "gone")
                    return None
                chunks.append(message["body"])
                if not message["more_body"]:
                    break
                held += len(message["body"])
                self._held_bytes += len(message["body"])
                if held > SMALL_BYTES and self._held_bytes > BODIES_AT_ONCE * self.max_body_bytes:
                    return self._refused(path, 503, "too many large bodies at once")
            found = self.handlers[path](b"".join(chunks))
            return HttpReply(200, found if isinstance(found, bytes) else await found)
        except WireError as error:
            self.unread(path, "bad_request")
            return _error(400, str(error))
        except Exception:
            self.unread(path, "failed")
            _log.exception("%s failed", path)
            return _error(500, "an error of the extender, see its log")
        finally:
            self._held_bytes -= held

    def _refused(self, path: str, status: int, text: str) -> HttpReply:
        self.unread(path, "too_large" if status == 413 else "refused")
        return _error(status, text, close=True)


def _error(status: int, text: str, *, close: bool = False) -> HttpReply:
    return HttpReply(status, orjson.dumps({"error": text}), close=close)


MAX_CONNECTIONS = 512
MAX_HEAD_BYTES = 2**15
# kube-scheduler waits for its httpTimeout (by default 5 s), the API server 30 s for a webhook.
SILENT_S = 10.0
REQUEST_S = 15.0


class ConnectionGuard:
    """The connections of one address; ``closed(why)`` hears of each that we end."""

    def __init__(self, closed: Callable[[str], None] = lambda why: None) -> None:
        self.closed = closed
        self.open: set[GuardedConnection] = set()
        self.protocol = partial(GuardedConnection, self)  # of a new connection, as uvicorn makes it

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
        """Take a place among the connections; of too many the longest quiet one ends."""
        self._transport = cast(asyncio.Transport, transport)
        there = self._guard.open
        if len(there) >= MAX_CONNECTIONS:
            quiet = [connection for connection in there if not connection.busy]
            min(quiet or there, key=lambda one: one.since).end("too many connections")
        there.add(self)
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

    ``files`` are those to watch. Raises ConfigError naming the files of a first pair that fails.
    """

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None = None) -> None:
        self.files = (certificate, key, *([] if client_ca is None else [client_ca]))
        self.context = self._newest = self._read()
        self.context.sni_callback = self._choose

    async def reload(self) -> None:
        """Read the files anew; raises ConfigError, and keeps the old pair, where that fails."""
        self._newest = self._read()

    def _choose(self, handshake: ssl.SSLObject, name: str | None, first: ssl.SSLContext) -> None:
        """Called at each ClientHello, with or without a server name in it."""
        handshake.context = self._newest

    def _read(self) -> ssl.SSLContext:
        certificate, key, *client_ca = self.files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # A resumed session would not be checked against a new client CA.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(certificate, key, password=_no_password)
        except (OSError, ssl.SSLError) as error:
            pair = f"server.certificate={certificate} and server.key={key}"
            raise ConfigError(f"{pair} cannot be used together: {error}") from None
        for authority in client_ca:
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_verify_locations(authority)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(f"server.client_ca={authority} cannot be used: {error}") from None
        return context


def _no_password() -> str:
    """Called for an encrypted key, where OpenSSL would ask at the terminal."""
    raise ssl.SSLError("the key is encrypted")
