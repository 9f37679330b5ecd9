"""The ASGI application: paths to handlers, bodies read within limits, answers."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import orjson

from ..errors import WireError
from .connections import Message, Receive, Send

_log = logging.getLogger(__name__)

# What all bodies on their way may hold together, as a multiple of the largest body; those that are
# small are read in any case. 5,000 names take 66 kB.
BODIES_AT_ONCE = 4
SMALL_BYTES = 2**17

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


class ExtenderApp:
    """Answers POST by ``handlers`` and GET by ``pages``, both by path without the first slash.

    ``unread(path, outcome)`` hears of each request that no handler answered; ``draining`` says when
    clients are to come back on another connection.
    """

    def __init__(
        self,
        *,
        pages: Mapping[str, Page],
        handlers: Mapping[str, Handler] | None = None,
        max_body_bytes: int = 2**16,
        unread: Callable[[str, str], None] = lambda path, outcome: None,
        draining: Callable[[], bool] = lambda: False,
    ) -> None:
        self._pages = pages
        self._handlers = handlers or {}
        self._max_body_bytes = max_body_bytes
        self._unread = unread
        self._draining = draining
        self._held_bytes = 0
        self.called_at = 0.0  # when the last call came, on the monotonic clock

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One request; a verb set with a leading slash is asked with two."""
        path: str = scope["path"].strip("/")
        reply = self._without_body(scope["method"], path, dict(scope["headers"]))
        if reply is None:
            reply = await self._called(path, receive)
        if reply is None:
            return
        headers = [*reply.headers, (b"content-length", b"%d" % len(reply.body))]
        if reply.close or self._draining():
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})

    def _without_body(
        self, method: str, path: str, headers: Mapping[bytes, bytes]
    ) -> HttpReply | None:
        """The reply to what is no call, or one whose body is not to be read; None for a call."""
        if path not in self._handlers:
            return self._page(method, path)
        if method != "POST":
            return _not_allowed(b"POST")
        if b"transfer-encoding" in headers:
            return self._refused(path, 411, "expected a body with Content-Length")
        if headers.get(b"content-encoding", b"identity") != b"identity":
            return self._refused(path, 415, "expected a body without Content-Encoding")
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self._max_body_bytes:
            return self._refused(path, 413, f"expected at most {self._max_body_bytes} bytes")
        return None

    def _page(self, method: str, path: str) -> HttpReply:
        page = self._pages.get(path)
        if page is None:
            known = (*self._handlers, *self._pages)
            return _error(404, f"expected one of {', '.join(f'/{p}' for p in known)}", close=True)
        return page() if method in ("GET", "HEAD") else _not_allowed(b"GET, HEAD")

    async def _called(self, path: str, receive: Receive) -> HttpReply | None:
        """The reply to a call; None where its sender has gone."""
        self.called_at = time.monotonic()
        chunks: list[bytes] = []
        held = 0
        try:
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    self._unread(path, "gone")
                    return None
                chunks.append(message["body"])
                if not message["more_body"]:
                    return await self._answered(path, b"".join(chunks))
                held += len(message["body"])
                self._held_bytes += len(message["body"])
                if held > SMALL_BYTES and self._held_bytes > BODIES_AT_ONCE * self._max_body_bytes:
                    return self._refused(path, 503, "too many large bodies at once")
        finally:
            self._held_bytes -= held

    async def _answered(self, path: str, body: bytes) -> HttpReply:
        try:
            found = self._handlers[path](body)
            return HttpReply(200, found if isinstance(found, bytes) else await found)
        except WireError as error:
            self._unread(path, "bad_request")
            return _error(400, str(error))
        except Exception:
            self._unread(path, "failed")
            _log.exception("%s failed", path)
            return _error(500, "an error of the extender, see its log")

    def _refused(self, path: str, status: int, text: str) -> HttpReply:
        self._unread(path, "too_large" if status == 413 else "refused")
        return _error(status, text, close=True)


def _not_allowed(allowed: bytes) -> HttpReply:
    reply = _error(405, f"expected {allowed.decode()}")
    return HttpReply(405, reply.body, (*JSON, (b"allow", allowed)), close=True)


def _error(status: int, text: str, *, close: bool = False) -> HttpReply:
    return HttpReply(status, orjson.dumps({"error": text}), close=close)
