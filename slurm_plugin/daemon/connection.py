"""Connections: request lines in, answer lines out in the same order, everything bounded."""

from __future__ import annotations

import asyncio
import logging
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from enum import StrEnum

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
    """All connections of the daemon; ``closing`` is told of each one that we end.

    A client has ``IDLE_S`` for a whole request and for taking in an answer. While one request is
    decided at most one more than a whole one is read.
    """

    def __init__(
        self, decisions: Decisions, peers: Peers, closing: Callable[[Closing], None]
    ) -> None:
        self._decisions = decisions
        self._peers = peers
        self._closing = closing
        self._open: set[StreamWriter] = set()

    async def listen(self, listening: socket.socket) -> asyncio.Server:
        """Serve who connects to a socket."""
        # A request ends with a newline, which counts.
        return await asyncio.start_unix_server(
            self._connected, sock=listening, limit=MAX_REQUEST_BYTES - 1
        )

    def close(self) -> None:
        """End all connections, after what was written to them."""
        for writer in self._open:
            writer.close()

    async def _connected(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._open.add(writer)
        try:
            why = self._refusal(writer) or await self._served(reader, writer)
            if why is not None:
                self._closing(why)
                writer.transport.abort()
        except ConnectionError:
            pass  # the client went
        finally:
            self._open.discard(writer)
            writer.close()

    def _refusal(self, writer: StreamWriter) -> Closing | None:
        """Why a client is not let in."""
        uid = peer_uid(writer.get_extra_info("socket"))
        if not self._peers.accept(uid):
            _log.warning("refused a connection of uid %d", uid)
            return Closing.FOREIGN
        return Closing.TOO_MANY if len(self._open) > MAX_CONNECTIONS else None

    async def _served(self, reader: StreamReader, writer: StreamWriter) -> Closing | None:
        """Answer line by line until the client is done, or why we end it."""
        try:
            while True:
                async with asyncio.timeout(IDLE_S):
                    line = await reader.readline()
                if not line.endswith(b"\n"):
                    return None
                writer.write(await self._decisions.answer(line))
                async with asyncio.timeout(IDLE_S):
                    await writer.drain()
        except TimeoutError:
            return Closing.IDLE
        except ValueError:  # of readline
            return Closing.TOO_LONG
