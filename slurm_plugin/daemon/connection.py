"""Connections: request lines in, answer lines out in the same order, everything bounded."""

from __future__ import annotations

import asyncio
import logging
import os
import pwd
import re
import socket
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Iterable
from enum import StrEnum

from ..protocol import MAX_REQUEST_BYTES
from .decisions import Decisions

_UCRED = struct.Struct("3i")  # struct ucred: pid, uid, gid
_NAME_AND_UID = re.compile(r"[^()]*\((\d+)\)")  # as scontrol show config prints SlurmUser


class Peers:
    """The user ids that are answered."""

    def __init__(self, users: Iterable[str] = ()) -> None:
        self.named: frozenset[int] = frozenset()
        self.slurm_user: int | None = None
        self.unknown: tuple[str, ...] = ()
        self.name(users)

    def name(self, users: Iterable[str]) -> None:
        """Take the users of the policy, names or numbers; ``unknown`` are those that are not."""
        found = {user: uid_of(user) for user in users}
        self.named = frozenset(uid for uid in found.values() if uid is not None)
        self.unknown = tuple(user for user, uid in found.items() if uid is None)

    def accept(self, uid: int) -> bool:
        """True where this user is answered."""
        return uid in (0, os.geteuid(), self.slurm_user) or uid in self.named

    @property
    def shared(self) -> bool:
        """True where users other than root and the daemon's own were named."""
        return bool(self.named - {0, os.geteuid()})


def uid_of(user: str) -> int | None:
    """The id of ``slurm``, ``64030`` or ``slurm(64030)``; None for an unknown name."""
    if both := _NAME_AND_UID.fullmatch(user):
        return int(both[1])
    if user.isdecimal():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


def peer_uid(connected: socket.socket) -> int:
    """The user at the other end of a Unix socket, as the kernel knows them."""
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return int(_UCRED.unpack(raw)[1])


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
