"""Files written so that slurmctld never sees half of one, and notices every new one."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from ..errors import InstallError
from .processes import SystemUser


def read(path: Path) -> bytes | None:
    """What a file holds, None where there is none; raises InstallError."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InstallError(f"{path} cannot be read: {error.strerror}") from None


def text(content: bytes | None) -> str:
    """A file's text; bytes that are no UTF-8 survive ``encoded``. Empty for no file."""
    return (content or b"").decode(errors="surrogateescape")


def encoded(text: str) -> bytes:
    """The bytes that ``text`` read."""
    return text.encode(errors="surrogateescape")


def put(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write a file aside and rename it; an existing one keeps its owner and mode.

    A symbolic link stays one: the file behind it is replaced. Raises InstallError.
    """
    target = path.resolve()
    try:
        old = target.stat() if target.exists() else None
        draft = _draft(target, content)
        try:
            if old is not None:
                os.chown(draft, old.st_uid, old.st_gid)
            os.chmod(draft, old.st_mode & 0o7777 if old is not None else mode)
            _date(draft, old)
            os.replace(draft, target)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InstallError(f"{path} cannot be written: {error.strerror}") from None


def make_directory(
    path: Path, mode: int = 0o755, owner: SystemUser | None = None
) -> tuple[Path, ...]:
    """Make a directory and its missing parents; returns those made, outermost first."""
    missing = [p for p in (path, *path.parents) if not p.exists()]
    try:
        for directory in reversed(missing):
            directory.mkdir()
            os.chmod(directory, 0o755)
        if missing:
            if owner is not None:
                os.chown(path, owner.uid, owner.gid)
            os.chmod(path, mode)
    except OSError as error:
        raise InstallError(f"{path} cannot be made: {error.strerror}") from None
    return tuple(reversed(missing))


def remove_if_empty(path: Path) -> None:
    """Remove a directory that holds nothing."""
    with suppress(OSError):
        path.rmdir()


def _draft(target: Path, content: bytes) -> Path:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".new")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return Path(name)


def _date(path: Path, old: os.stat_result | None) -> None:
    """Date a file after the one it replaces, and a second ahead.

    slurmctld reloads a script only when its time stamp, in whole seconds, is after that of its
    last load: a second version within the same second would never be seen.
    """
    ahead = max(int(time.time()), int(old.st_mtime) if old is not None else 0) + 1
    os.utime(path, (ahead, ahead))
