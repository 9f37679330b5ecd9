"""Files under the home directory of precision-time: who may own them, how they are written.

Nothing here is read through a symbolic link, and nothing that another user could have written.
A file or a directory appears whole, by a rename after it has reached the disk, or not at all.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import BinaryIO

from profiles import roots
from profiles.errors import ProfileDataError
from profiles.roots import HOME_VARIABLE

from .errors import ArtifactError

DRAFT_PREFIX = ".draft-"
FILE_MODE = 0o644  # whatever the umask: a group-writable file would be refused when read
DIRECTORY_MODE = 0o755


def home() -> Path:
    """The home directory of precision-time; raises ArtifactError where it cannot be told."""
    try:
        return roots.home()
    except ProfileDataError as error:
        raise ArtifactError(str(error)) from None


def trusted(path: Path, *, to_write: bool = False) -> Path:
    """The same path, if it is a file or directory that only this user or root can change.

    Root also reads what the owner of the home could change, but writes nothing beside it. Raises
    ArtifactError for a link, another owner or a writable mode; FileNotFoundError for nothing.
    """
    try:
        status = path.lstat()
    except (PermissionError, NotADirectoryError) as error:
        raise ArtifactError(f"{path} cannot be reached: {error.strerror}") from error
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise ArtifactError(
            f"{path} is a link or a special file; put the real one there, or set {HOME_VARIABLE}"
            " to where it is"
        )
    if status.st_uid not in ((0, os.geteuid()) if to_write else roots.owners()):
        raise ArtifactError(
            f"{path} belongs to user {status.st_uid}; what others can change is not loaded:"
            f" run this as that user, or set {HOME_VARIABLE} to a directory of your own"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ArtifactError(
            f"{path} can be written by other users; run `chmod go-w {path}` if you trust what it"
            f" holds, or set {HOME_VARIABLE} to another directory"
        )
    if not os.access(path, os.R_OK):
        raise ArtifactError(f"{path} cannot be read by this user: run `chmod u+r {path}`")
    return path


@contextmanager
def exclusive(root: Path) -> Iterator[None]:
    """Hold the only right to write below ``root``, made where missing, with its ``models``.

    What a killed writer left half-done is removed. Turns every OSError inside into ArtifactError.
    """
    try:
        for directory in (root, root / "models"):
            directory.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
            trusted(directory, to_write=True)
        lock = os.open(root / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, FILE_MODE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # What is left of drafts is nobody's work: only the holder of the lock makes any.
            for where in ("", "models/", "profiles/"):
                for draft in root.glob(f"{where}{DRAFT_PREFIX}*"):
                    if draft.is_dir() and not draft.is_symlink():
                        shutil.rmtree(draft)
                    else:
                        draft.unlink()
            yield
        finally:
            os.close(lock)
    except OSError as error:
        raise ArtifactError(
            f"cannot write below {root}: {error.strerror or error}; make room or grant access"
            f" there, or set {HOME_VARIABLE} to another directory"
        ) from error


@contextmanager
def draft_directory(parent: Path) -> Iterator[Path]:
    """A new directory beside the final ones, to be published; gone at the end if it was not."""
    draft = Path(mkdtemp(prefix=DRAFT_PREFIX, dir=parent))
    try:
        draft.chmod(DIRECTORY_MODE)
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def publish(draft: Path, final: Path) -> None:
    """Give a finished directory its name."""
    _sync(draft)
    draft.rename(final)
    _sync(final.parent)


def discard(directory: Path) -> None:
    """Make a directory disappear at once, then free its space."""
    doomed = directory.with_name(DRAFT_PREFIX + directory.name)
    directory.rename(doomed)
    shutil.rmtree(doomed)


@contextmanager
def create(path: Path) -> Iterator[BinaryIO]:
    """A new file to write to; it is on the disk when the block ends."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        yield file
        file.flush()
        os.fsync(descriptor)


def replace_text(path: Path, text: str) -> None:
    """Write a small file whole: readers see what was there before, or all of ``text``."""
    draft = path.with_name(DRAFT_PREFIX + path.name)
    with create(draft) as file:
        file.write(text.encode())
    draft.replace(path)
    _sync(path.parent)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
