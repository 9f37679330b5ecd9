"""The socket of the daemon: one daemon for a path, and nothing of anybody else replaced."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from pathlib import Path

from ..errors import SlurmError

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
        self._lock = _locked(path)
        self._inode: int | None = None

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


def _locked(path: Path) -> int:
    check_directory(path.parent)
    lock = path.with_name(path.name + ".lock")
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE)
    except OSError as error:
        raise ListenError(f"{lock}: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise ListenError(f"another daemon is running on {path}; stop it first") from None
    return handle


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
