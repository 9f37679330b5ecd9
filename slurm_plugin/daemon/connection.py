"""Connections: request lines in, answer lines out in the same order, everything bounded."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import pwd
import re
import socket
import stat
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ..errors import SlurmError
from ..protocol import MAX_REQUEST_BYTES
from .decisions import Decisions

_UCRED = struct.Struct("3i")  # struct ucred: pid, uid, gid
_NAME_AND_UID = re.compile(r"[^()]*\((\d+)\)")  # as scontrol show config prints SlurmUser


class Peers:
    """The user ids that are answered."""

    def __init__(self, users: Iterable[str] = ()) -> None:
        self.named: frozenset[int] = frozenset()
        self.slurm_user: int | None = None
        self.name(users)

    def name(self, users: Iterable[str]) -> tuple[str, ...]:
        """Take the users of the policy, names or numbers; those that there are not."""
        found = {user: uid_of(user) for user in users}
        self.named = frozenset(uid for uid in found.values() if uid is not None)
        return tuple(user for user, uid in found.items() if uid is None)

    def accept(self, uid: int) -> bool:
        """True where this user is answered."""
        return uid in (0, os.geteuid(), self.slurm_user) or uid in self.named


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


MAX_CONNECTIONS = 64
IDLE_S = 10.0
RETRY_S = 1.0
_log = logging.getLogger(__name__)


class Closing(StrEnum):
    """Why a connection was closed by us."""

    FOREIGN = "foreign_user"
    TOO_MANY = "too_many_connections"
    TOO_LONG = "too_long"
    IDLE = "idle"


@dataclass(eq=False)
class Connections:
    """All connections of the daemon; ``closing`` is told of each one that we end.

    A client has ``IDLE_S`` for a whole request and for taking in an answer. While one request is
    decided no more than a whole one is kept. A hook has mostly sent its line when it is accepted,
    and is answered at once where nobody else is connected.
    """

    decisions: Decisions
    peers: Peers
    closing: Callable[[Closing], None]

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._open: dict[socket.socket, asyncio.Task[None]] = {}

    def listen(self, listening: socket.socket) -> None:
        """Serve who connects to a socket."""
        self._loop.add_reader(listening, self._accept, listening)

    def close(self) -> None:
        """End all connections."""
        for one in self._open.values():
            one.cancel()

    def _accept(self, listening: socket.socket) -> None:
        """Take in all who wait, so that their users get turns."""
        arrived: list[socket.socket] = []
        try:
            while True:
                arrived.append(listening.accept()[0])
                arrived[-1].setblocking(False)
        except (BlockingIOError, ConnectionError):
            pass
        except OSError as error:  # too many open files
            _log.error("a connection cannot be accepted: %s", error)
            self._loop.remove_reader(listening)
            self._loop.call_later(RETRY_S, self.listen, listening)
        for connected in arrived:
            raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
            uid, received = _UCRED.unpack(raw)[1], bytearray()  # as the kernel knows it
            if not self.peers.accept(uid):
                _log.warning("refused a connection of uid %d", uid)
                self.closing(Closing.FOREIGN)
            elif len(self._open) == MAX_CONNECTIONS:
                self.closing(Closing.TOO_MANY)
            elif self._open or len(arrived) > 1 or not self._at_once(connected, received):
                task = self._loop.create_task(self._connected(connected, received))
                self._open[connected] = task
                continue
            connected.close()

    def _at_once(self, connected: socket.socket, received: bytearray) -> bool:
        """Answer a client that sends one line and no more; False where that is not all."""
        with suppress(BlockingIOError, ConnectionError):
            received += connected.recv(MAX_REQUEST_BYTES)
            if received.find(b"\n") + 1 == len(received) > 0:
                if (answer := self.decisions.at_once(bytes(received))) is None:
                    return False
                received.clear()
                connected.send(answer)
                received += connected.recv(MAX_REQUEST_BYTES)
            return not received
        return False

    async def _connected(self, connected: socket.socket, received: bytearray) -> None:
        try:
            with connected, suppress(ConnectionError):  # the client went
                if (why := await self._served(connected, received)) is not None:
                    self.closing(why)
        finally:  # at once: who connects next counts those that are left
            del self._open[connected]

    async def _served(self, connected: socket.socket, received: bytearray) -> Closing | None:
        """Answer line by line until the client is done, or why we end it."""
        seen = 0
        while True:
            try:
                async with asyncio.timeout(IDLE_S):
                    while (end := received.find(b"\n", seen) + 1) == 0:
                        seen = len(received)
                        if seen >= MAX_REQUEST_BYTES:
                            return Closing.TOO_LONG
                        part = await self._loop.sock_recv(connected, MAX_REQUEST_BYTES - seen)
                        if not part:
                            return None
                        received += part
                line, seen = bytes(received[:end]), 0
                del received[:end]
                answer = await self.decisions.answer(line)
                async with asyncio.timeout(IDLE_S):
                    await self._loop.sock_sendall(connected, answer)
            except TimeoutError:
                return Closing.IDLE


BACKLOG = 128
PRIVATE, SHARED = 0o600, 0o666


class ListenError(SlurmError):
    """The socket cannot be had; the message names the path and what is in the way."""


class DaemonSocket:
    """The place of the socket of a daemon; raises ListenError.

    Its directory is made where it is missing, and must belong to this user or root and be writable
    by nobody else. A lock beside the socket keeps a second daemon out.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._inode: int | None = None
        check_directory(path.parent)
        lock, flags = path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT
        try:
            self._lock = os.open(lock, flags | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE)
        except OSError as error:
            raise ListenError(f"{lock}: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise ListenError(f"another daemon is running on {path}; stop it first") from None

    def listen(self, *, shared: bool = False) -> socket.socket:
        """The listening socket, in the place of one that nobody listens on any more.

        Its mode is 0600, or 0666 where ``shared``: then whoever connects is judged by their uid
        alone. Raises ListenError; a file that is no socket is never replaced.
        """
        made = bound(self.path, SHARED if shared else PRIVATE)
        self._inode = self.path.lstat().st_ino
        return made

    def give_to(self, uid: int) -> None:
        """Make a user the owner of the socket, for a daemon of root and a slurmctld that is not."""
        if os.geteuid() == 0 and self._is_ours() and self.path.lstat().st_uid != uid:
            os.chown(self.path, uid, -1, follow_symlinks=False)

    def remove(self) -> None:
        """Remove the socket, if it is still the one that was made; call it while that is open."""
        if self._is_ours():
            self.path.unlink(missing_ok=True)
        self._inode = None

    def close(self) -> None:
        """Let another daemon have the place."""
        self.remove()
        os.close(self._lock)

    def _is_ours(self) -> bool:
        try:
            return self.path.lstat().st_ino == self._inode
        except OSError:
            return False


def check_directory(directory: Path) -> None:
    """Make a directory (0755), or see that only this user and root can write in it."""
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        status = directory.stat()
    except OSError as error:
        raise ListenError(f"{directory}: {error.strerror}") from None
    if status.st_uid not in (0, os.geteuid()):
        raise ListenError(
            f"{directory} belongs to uid {status.st_uid}; expected root or uid {os.geteuid()}"
        )
    if status.st_mode & 0o022:
        raise ListenError(
            f"{directory} has mode {stat.S_IMODE(status.st_mode):04o}: others could put a socket"
            " of their own there; run `chmod go-w` on it"
        )


def bound(path: Path, mode: int) -> socket.socket:
    """A listening socket in the place of one that nobody listens on; raises ListenError."""
    _clear(path)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    umask = os.umask(0o177)  # never more open than meant, not for an instant
    try:
        made.bind(str(path))
        made.listen(BACKLOG)
        path.chmod(mode)
    except OSError as error:
        made.close()
        raise ListenError(f"{path}: {error.strerror or error}") from None
    finally:
        os.umask(umask)
    made.setblocking(False)
    return made


def _clear(path: Path) -> None:
    """Remove a socket nobody listens on."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise ListenError(f"{path} is not a socket: it is left as it is; name another one")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise ListenError(f"{path} is in use: {error}") from None
    raise ListenError(f"another program listens on {path}; stop it first")
