"""Directories that hold data: the shipped one, and those added to this installation.

An added directory lies in ``profiles`` under the home directory of precision-time and has the
layout of this one: ``gpus.yaml``, ``sources.yaml``, ``operators/*.csv``, ``collectives/*.csv``.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path

from .errors import ProfileDataError
from .storage import HERE

HOME_VARIABLE = "PRECISION_TIME_HOME"

_candidate: ContextVar[Path | None] = ContextVar("_candidate", default=None)


def home() -> Path:
    """``$PRECISION_TIME_HOME``, else ``precision-time`` in the user's cache directory.

    Raises ProfileDataError where neither can be told.
    """
    named = os.environ.get(HOME_VARIABLE)
    if named:
        return Path(named).expanduser().resolve()
    cache_home = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(cache_home):
        return Path(cache_home).resolve() / "precision-time"
    try:
        return Path.home().resolve() / ".cache" / "precision-time"
    except RuntimeError:
        raise ProfileDataError(f"this user has no home directory: set {HOME_VARIABLE}") from None


def owners() -> set[int]:
    """Whose files are read: root's, this user's and, by root, those of the home's owner."""
    found = {0, os.geteuid()}
    if os.geteuid() == 0:
        with suppress(OSError, ProfileDataError):
            found.add(home().stat().st_uid)
    return found


def roots() -> tuple[Path, ...]:
    """The shipped directory, then those added, by name; last the one being checked, if any."""
    candidate = _candidate.get()
    found = (HERE, *_added(os.environ.get(HOME_VARIABLE), os.environ.get("XDG_CACHE_HOME")))
    return found if candidate is None or candidate in found else (*found, candidate)


@contextmanager
def also(root: Path) -> Iterator[None]:
    """Count a directory among the roots while it is checked; only this thread sees it."""
    token = _candidate.set(root)
    try:
        yield
    finally:
        _candidate.reset(token)


def forget() -> None:
    """Look again for added directories at the next question."""
    _added.cache_clear()


@cache
def _added(_home: str | None, _cache: str | None) -> tuple[Path, ...]:
    try:
        folder = home() / "profiles"
        return tuple(path for path in sorted(folder.glob("[!.]*")) if _usable(path))
    except (OSError, ProfileDataError):
        return ()


def _usable(path: Path) -> bool:
    """True for a real directory that none but its owner can change."""
    status = path.lstat()
    closed = not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(status.st_mode) and status.st_uid in owners() and closed
