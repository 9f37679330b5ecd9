"""A profile directory being filled: sheets, sources, tables, quarantine, and what ran when."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
import yaml

from profiles import gpus
from profiles.storage import COLLECTIVE_COLUMNS, OPERATOR_COLUMNS, read_table

from ... import trusted_files
from ...errors import ProfilerError
from .device import Sheet
from .timing import Pace, cpu_clock

ID, REASON = 0, 2  # every table starts with the id; where a quarantine has the reason
MANIFEST = "manifest.json"
PACE = "pace.json"
# What was under way when so many runs were killed is not measured again: it may be why.
RUNS = 2
LICENSE = "not stated: measured on this machine"
OPERATORS, COLLECTIVES = "operators", "collectives"
_COLUMNS = {OPERATORS: OPERATOR_COLUMNS, COLLECTIVES: COLLECTIVE_COLUMNS}


class Journal(AbstractContextManager["Journal"]):
    """One table of a profile directory, open for more rows.

    What a killed run left of a last line is dropped. Only one process can hold a journal; another
    one gets ProfilerError, as does one whose columns differ.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._file: BinaryIO = path.open("a+b")
        self.done: set[str] = set()
        try:
            self._resume(tuple(columns))
        except BaseException:
            self._file.close()
            raise

    def append(self, cells: Sequence[str]) -> None:
        """Write one row and wait for the disk."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(cells)
        self._file.write(text.getvalue().encode("utf-8"))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.done.add(cells[ID])

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _resume(self, columns: tuple[str, ...]) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ProfilerError(f"{self._path} is being written by another process") from None
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


class Rows:
    """A table and the quarantine beside it; ``done`` are the ids in either.

    ``underway`` is a file of what was begun, so that what ends the process is known by the next.
    """

    def __init__(self, table: Journal, quarantine: Journal, underway: Path) -> None:
        self._table, self._quarantine, self._underway = table, quarantine, underway
        self.stood = len(table.done)
        self.done = table.done | quarantine.done
        self._begun = Counter(underway.read_text("utf-8").split() if underway.exists() else ())

    def begin(self, name: str) -> None:
        """Note what is measured next; RuntimeError if runs were killed while it was before."""
        if self._begun[name] >= RUNS:
            raise RuntimeError(f"{RUNS} runs were killed while it was measured")
        with self._underway.open("a", encoding="utf-8") as file:
            file.write(f"{name}\n")

    def add(self, cells: Sequence[str], fault: str | None) -> None:
        """Write one row where a fit reads it or, with the fault, where none does."""
        if fault is None:
            self._table.append(cells)
        else:
            self._quarantine.append((*cells[:REASON], fault, *cells[REASON:]))
        self.done.add(cells[ID])


@contextmanager
def opened_rows(
    root: Path, table: str, quarantine: str, columns: tuple[str, ...]
) -> Iterator[Rows]:
    """Rows of a table, those with a fault under ``quarantine/`` with the reason."""
    refused = (*columns[:REASON], "reason", *columns[REASON:])
    with (
        Journal(root / table, columns) as kept,
        Journal(root / "quarantine" / quarantine, refused) as aside,
    ):
        yield Rows(kept, aside, (root / "quarantine" / quarantine).with_suffix(".begun"))


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory in the layout of ``profiles/``."""

    root: Path

    def rows(self, kind: str, device: str) -> AbstractContextManager[Rows]:
        """The operators or collectives of a device, open for more rows."""
        return opened_rows(self.root, f"{kind}/{device}.csv", f"{kind}.csv", _COLUMNS[kind])

    def add_sheet(self, sheet: Sheet) -> None:
        """State the device where the shipped sheets lack it; a sheet that stands here stays."""
        self._add("gpus.yaml", sheet.device, sheet.entry)
        gpus.forget()

    def add_source(self, key: str, citation: str, version: str) -> None:
        """State where rows come from."""
        entry = {
            "repository": "precision-time profile",
            "commit": version,
            "license": LICENSE,
            "citation": citation,
        }
        self._add("sources.yaml", key, entry)

    def pace(self, device: str) -> Pace:
        """What paces of a CPU are relative to: the first moment it was measured for this place."""
        path = self.root / PACE
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        pace = Pace(cpu_clock(torch.get_num_threads()), known.get(device))
        if device not in known:
            self._write(PACE, json.dumps({**known, device: pace.first}, indent=2) + "\n")
        return pace

    def notes(self, device: str) -> tuple[str, ...]:
        """The notes of the operator rows of a device."""
        columns = read_table(self.root / OPERATORS / f"{device}.csv", OPERATOR_COLUMNS, self.root)
        return columns[OPERATOR_COLUMNS.index("note")]

    def log(self, run: Mapping[str, Any]) -> None:
        """Add a run to the manifest."""
        path = self.root / MANIFEST
        runs = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        self._write(MANIFEST, json.dumps([*runs, run], indent=2) + "\n")

    def _add(self, name: str, key: str, entry: Mapping[str, Any] | None) -> None:
        path = self.root / name
        known = yaml.safe_load(path.read_bytes()) if path.exists() else None
        known = known or {}
        if entry is not None and key not in known:
            known[key] = dict(entry)
        if entry is not None or not path.exists():
            self._write(name, yaml.safe_dump(known, sort_keys=False) if known else "{}\n")

    def _write(self, name: str, text: str) -> None:
        (self.root / (trusted_files.DRAFT_PREFIX + name)).unlink(missing_ok=True)
        trusted_files.replace_text(self.root / name, text)


def directory(root: Path) -> Directory:
    """The directory, made where missing; raises ProfilerError where it cannot be written."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        return Directory(root.resolve(strict=True))
    except OSError as error:
        raise ProfilerError(f"out={root} cannot be written: {error.strerror}") from None
