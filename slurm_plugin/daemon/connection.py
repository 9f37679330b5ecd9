"""One connection: request lines in, answer lines out in the same order, everything bounded."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from enum import StrEnum
from typing import cast

from ..protocol import MAX_REQUEST_BYTES
from .decisions import Decisions
from .peers import Peers, peer_uid

MAX_CONNECTIONS = 64
IDLE_S = 10.0
_log = logging.getLogger(__name__)


class Closing(StrEnum):
    """Why a connection was closed by us."""

    FOREIGN = "foreign_user"
    TOO_MANY = "too_many_connections"
    TOO_LONG = "too_long"
    IDLE = "idle"


class Connections:
    """All connections of the daemon; ``closing`` is told of each one that we end."""

    def __init__(
        self, decisions: Decisions, peers: Peers, closing: Callable[[Closing], None]
    ) -> None:
        self.decisions = decisions
        self.peers = peers
        self.closing = closing
        self.open: set[Connection] = set()

    def connection(self) -> Connection:
        """The protocol of a new connection."""
        return Connection(self)

    def close_idle(self, idle_s: float = IDLE_S) -> None:
        """End connections that have asked nothing whole for so long."""
        before_s = time.monotonic() - idle_s
        for connection in [c for c in self.open if c.waits_since_s < before_s]:
            connection.end(Closing.IDLE)

    def close(self) -> None:
        """End all connections, after what was written to them."""
        for connection in list(self.open):
            connection.finish()


class Connection(asyncio.Protocol):
    """Reads lines and answers them one at a time.

    While one is being decided at most one more than a whole request is read from the client.
    """

    def __init__(self, connections: Connections) -> None:
        self._all = connections
        self._buffer = bytearray()
        self._busy = False
        self._ended = False  # the client will send no more
        self._full = False  # the client does not read its answers
        self._paused = False
        self._since_s = time.monotonic()

    @property
    def waits_since_s(self) -> float:
        """Since when the client owes us a request; infinity while we owe it an answer."""
        return float("inf") if self._busy else self._since_s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the client in, unless it may not ask or too many do."""
        self._transport = cast(asyncio.Transport, transport)
        self._all.open.add(self)
        connected = cast(socket.socket, transport.get_extra_info("socket"))
        self._fileno = connected.fileno()
        uid = peer_uid(connected)
        if not self._all.peers.accept(uid):
            _log.warning("refused a connection of uid %d", uid)
            self.end(Closing.FOREIGN)
        elif len(self._all.open) > MAX_CONNECTIONS:
            self.end(Closing.TOO_MANY)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client."""
        self._all.open.discard(self)

    def data_received(self, data: bytes) -> None:
        """Take bytes in."""
        self._buffer += data
        self._next()

    def eof_received(self) -> bool:
        """The client is done; we are after the last answer."""
        self._ended = True
        return self._busy or self._full or b"\n" in self._buffer

    def pause_writing(self) -> None:
        """Answers pile up: decide no more for this client."""
        self._full = True

    def resume_writing(self) -> None:
        """The client has read its answers."""
        self._full = False
        self._next()

    def end(self, why: Closing) -> None:
        """Close at once, answers not yet read included."""
        self._all.closing(why)
        self._all.open.discard(self)
        self._transport.abort()

    def finish(self) -> None:
        """Close after what was written."""
        self._transport.close()

    def _next(self) -> None:
        """Ask for the next whole line, where there is one and nothing is under way."""
        if self._transport.is_closing():
            return
        if not self._busy and not self._full:
            length = self._buffer.find(b"\n")
            if (len(self._buffer) if length < 0 else length) >= MAX_REQUEST_BYTES:
                self.end(Closing.TOO_LONG)
                return
            if length >= 0:
                line = bytes(self._buffer[: length + 1])
                del self._buffer[: length + 1]
                self._busy = True
                self._all.decisions.ask(line, self._answered)
            elif self._ended:
                self._transport.close()
                return
        self._flow()

    def _answered(self, line: bytes) -> None:
        self._busy = False
        self._since_s = time.monotonic()
        if self._transport.is_closing():
            return
        self._transport.write(line)
        if not self._buffer and (self._ended or self._has_ended()):
            # The hook reads to the end, and shall not wait until this loop gets to closing.
            self._transport.write_eof()
        if self._buffer or self._ended:
            asyncio.get_running_loop().call_soon(self._next)

    def _has_ended(self) -> bool:
        """True where the client will send no more, and all it sent was read."""
        peeking = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=self._fileno)
        try:
            return peeking.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except OSError:
            return False
        finally:
            peeking.detach()

    def _flow(self) -> None:
        """Read no further ahead than one request."""
        crowded = len(self._buffer) > MAX_REQUEST_BYTES
        if crowded is not self._paused and not self._ended:
            self._paused = crowded
            (self._transport.pause_reading if crowded else self._transport.resume_reading)()
