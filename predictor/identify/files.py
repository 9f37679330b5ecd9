"""How the files that a command names may be read, and those of the user who asks."""

from __future__ import annotations

import os
import posixpath
import stat
from pathlib import Path
from typing import Protocol

from .config_values import MAX_TEXT


class Files(Protocol):
    """Reads the small text files that a command names."""

    def read(self, path: str) -> str | None:
        """The text, None where there is none to be read; never raises.

        ``path`` is as the command has it, relative to the directory it starts in.
        """


class UserFiles:
    """Files with the rights of this process, relative to ``directory``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, path: str) -> str | None:
        """The text of a regular file of at most 64 KiB."""
        try:
            descriptor = os.open(self._directory / path, os.O_RDONLY | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    return None
                text = file.read(MAX_TEXT + 1)
        except (OSError, ValueError):
            return None
        return text.decode(errors="replace") if len(text) <= MAX_TEXT else None


class FilesAt:
    """The same files for a command that runs in ``directory``."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory

    @classmethod
    def of(cls, files: Files | None, directory: str | None) -> FilesAt | None:
        """None where there are no files, or it is not known where the command runs."""
        return None if files is None or directory is None else cls(files, directory)

    def read(self, path: str) -> str | None:
        """As of the files."""
        return self._files.read(posixpath.join(self._directory, path))
