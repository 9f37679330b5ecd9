"""One keep-alive connection that asks as kube-scheduler does: a call at a time."""

from __future__ import annotations

import gzip
import socket
import ssl
import time
from dataclasses import dataclass
from typing import Any

import httptools
import orjson

READ_BYTES = 2**18
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for one call, and the seconds from its first byte out to its last byte in."""

    status: int
    body: bytes
    taken_s: float

    def json(self) -> Any:
        """The value of the body; raises ValueError where the call failed."""
        if self.status != 200:
            raise ValueError(f"status {self.status}: {self.body[:200]!r}")
        return orjson.loads(self.body)


class Connection:
    """A connection to a server on the loopback, over TLS where ``context`` is given."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = (
            plain if context is None else context.wrap_socket(plain, server_hostname="127.0.0.1")
        )

    def ask(self, request: bytes) -> Answer:
        """Send one request and read its whole answer; raises OSError where the server closes."""
        reading = _Reading()
        start = time.perf_counter()
        self._socket.sendall(request)
        while not reading.whole:
            data = self._socket.recv(READ_BYTES)
            if not data:
                raise ConnectionError("the server closed the connection")
            reading.parser.feed_data(data)
        taken_s = time.perf_counter() - start
        return Answer(reading.parser.get_status_code(), reading.body(), taken_s)

    def close(self) -> None:
        """Close it."""
        self._socket.close()


class _Reading:
    """The callbacks of the parser."""

    def __init__(self) -> None:
        self.whole = False
        self._parts: list[bytes] = []
        self._zipped = False
        self.parser = httptools.HttpResponseParser(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Only a compressed body is of interest."""
        self._zipped |= name.lower() == b"content-encoding" and value == b"gzip"

    def on_body(self, part: bytes) -> None:
        """Keep it."""
        self._parts.append(part)

    def on_message_complete(self) -> None:
        """The last byte is here."""
        self.whole = True

    def body(self) -> bytes:
        """The whole body, plain."""
        joined = b"".join(self._parts)
        return gzip.decompress(joined) if self._zipped else joined
