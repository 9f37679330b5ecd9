"""Configuration files in the work directory of a job, read at submit and never waited for.

A job names its files, so a path may lead anywhere and a file may be anything: only regular files
below the work directory are read, through no symbolic link, that belong to the submitting user, or
to root where everyone may read them. A file system that hangs holds up one thread, and no decision:
until that thread is back, nothing is read.
"""

from __future__ import annotations

import os
import posixpath
import stat
import threading
import time
from contextlib import ExitStack, suppress

from predictor.identify.files import MAX_TEXT

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class TimedReads:
    """Reads in a thread of its own, one at a time."""

    def __init__(self) -> None:
        self._free = threading.Lock()

    def read(self, directory: str, path: str, uid: int, within_s: float) -> str | None:
        """The text, None where it may not be read, or not within that time."""
        if within_s <= 0 or not self._free.acquire(blocking=False):
            return None
        found: list[str | None] = []
        done = threading.Event()

        def work() -> None:
            try:
                with suppress(OSError, ValueError):
                    found.append(owned_text(directory, path, uid))
            finally:
                self._free.release()
                done.set()

        try:
            threading.Thread(target=work, name="job-file", daemon=True).start()
        except RuntimeError:  # no thread to be had
            self._free.release()
            return None
        return found[0] if done.wait(within_s) and found else None


class JobFiles:
    """The files of one job, for at most ``within_s`` seconds from here on."""

    def __init__(self, reads: TimedReads, directory: str, uid: int, within_s: float) -> None:
        self._reads = reads
        self._directory = directory
        self._uid = uid
        self._until = time.monotonic() + within_s

    def read(self, path: str) -> str | None:
        """The text of a file below the work directory."""
        left_s = self._until - time.monotonic()
        return self._reads.read(self._directory, path, self._uid, left_s)


def owned_text(directory: str, path: str, uid: int) -> str | None:
    """The text of a file that the user owns, or that root lets everyone read; None of others.

    Raises OSError for a path that is missing, leads out of ``directory`` or through a link.
    """
    parts = _below(directory, path)
    with ExitStack() as opened:

        def kept(descriptor: int) -> int:
            opened.callback(os.close, descriptor)
            return descriptor

        here = kept(os.open(directory, _DIRECTORY & ~os.O_NOFOLLOW))
        for part in parts[:-1]:
            here = kept(os.open(part, _DIRECTORY, dir_fd=here))
        file = kept(os.open(parts[-1], _FILE, dir_fd=here))
        status = os.fstat(file)
        shared = status.st_uid == 0 and status.st_mode & stat.S_IROTH
        if not stat.S_ISREG(status.st_mode) or not (status.st_uid == uid or shared):
            return None
        if status.st_size > MAX_TEXT:
            return None
        return os.read(file, MAX_TEXT).decode(errors="replace")


def _below(directory: str, path: str) -> list[str]:
    """The parts of a path below a directory; raises ValueError for any other."""
    if not directory.startswith("/") or "\0" in path:
        raise ValueError(path)
    whole = posixpath.normpath(posixpath.join(directory, path))
    inside = posixpath.relpath(whole, posixpath.normpath(directory))
    parts = inside.split("/")
    if parts[0] in ("..", "."):
        raise ValueError(path)
    return parts
