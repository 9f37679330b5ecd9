"""A CSV file that grows by whole rows: each is on the disk before the next is measured."""

from __future__ import annotations

import csv
import fcntl
import io
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from ...errors import ProfilerError

ID = 0  # every table starts with the id of the row


class Journal:
    """One table of a profile directory, open for more rows.

    What a killed run left of a last line is dropped. Only one process can hold a journal; another
    one gets ProfilerError, as does one whose columns differ.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._width = path, len(columns)
        self._file: BinaryIO = path.open("a+b")
        self.done: set[str] = set()
        try:
            self._lock()
            self._resume(tuple(columns))
        except BaseException:
            self._file.close()
            raise

    def append(self, cells: Sequence[str]) -> None:
        """Write one row and wait for the disk."""
        self._file.write(_line(cells))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.done.add(cells[ID])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ProfilerError(f"{self._path} is being written by another process") from None

    def _resume(self, columns: tuple[str, ...]) -> None:
        self._file.seek(0)
        text = self._file.read()
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) < len(text):
            self._file.truncate(len(whole))
        rows = list(csv.reader(io.StringIO(whole.decode("utf-8"))))
        if not rows:
            self.append(columns)
            self.done.clear()
        elif tuple(rows[0]) != columns:
            raise ProfilerError(f"{self._path} has other columns: {', '.join(rows[0])}")
        self.done.update(row[ID] for row in rows[1:])


def _line(cells: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode("utf-8")
