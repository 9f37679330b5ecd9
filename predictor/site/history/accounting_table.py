"""Plain accounting tables as runs: a job a row, columns by the names in ``columns.yaml``.

Delimited by commas, tabs, semicolons or pipes (``sacct -P``), gzipped or not. Only when a job was
submitted and how many GPUs it had must be there; what else is missing is not known of its runs.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import tzinfo
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from ...errors import HistoryError
from ..ended_job import EndedJob, JobState
from .cells import (
    MIB,
    asked_gpus,
    duration_s,
    gpu_type,
    limit_s,
    memory_bytes,
    moment_s,
    tres_value,
    whole,
)
from .ingest import Item, LeftOut, Unread
from .run import Run

NO_GPUS, GOING_ON = "without GPUs", "not ended"
STEP, HEADER = "a step of a job", "a repeated header"
MAX_LINE_CHARS = 1_000_000  # of a row; the rest of a longer line is skipped
SKEW_S = 60.0  # by which clocks of a cluster differ: a start so much before the submission is it
_DELIMITERS = ",|\t;"
_LINES_BETWEEN_TELLS = 1000
_GZIP = b"\x1f\x8b"
_STEP = re.compile(r"[\d_+\[\]%,-]+\.(batch|extern|interactive|\d+)", re.ASCII)
_REQUIRED = (("submit",), ("start", "wait"), ("end", "elapsed"), ("gpus",))
Scaled = tuple[str, float]


class _MessyRowError(Exception):
    """A row that cannot be read; the message says why, alike for all such rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """Where a table comes from: its scheduler, its cluster where no column names one, its zone.

    ``zone`` is of times that name none, None for the zone of this machine. With ``keep_unknown``
    a job whose state is missing or no known one is a run of state UNKNOWN.
    """

    scheduler: str
    cluster: str = ""
    zone: tzinfo | None = None
    keep_unknown: bool = False


class AccountingTable:
    """The runs of a table in a file, and how much of it is read.

    Raises HistoryError where the file cannot be read or lacks a column that has to be there.
    """

    def __init__(self, path: Path, source: TableSource) -> None:
        self._path = path
        self._source = source
        self._at, self._size = 0, 1

    @property
    def share(self) -> float:
        """What part of the file was read."""
        return min(1.0, self._at / self._size)

    def header(self) -> list[str]:
        """The names of its columns."""
        with self._rows() as rows:
            return next(rows, [])

    def __iter__(self) -> Iterator[Item]:
        with self._rows() as rows:
            reader = RowReader(next(rows, []), self._source, self._path)
            for number in range(1, 2**62):
                try:
                    row = next(rows, None)
                except csv.Error:
                    yield Unread(f"row {number}", "no row of a table")
                    continue
                if row is None:
                    return
                if row:
                    yield reader.item(row, number)

    @contextmanager
    def _rows(self) -> Iterator[Iterator[list[str]]]:
        try:
            with self._path.open("rb") as raw:
                self._size = max(1, self._path.stat().st_size)
                packed = raw.peek(2).startswith(_GZIP)
                file = gzip.GzipFile(fileobj=raw) if packed else raw
                with io.TextIOWrapper(file, "utf-8-sig", errors="replace", newline="") as text:
                    lines = self._told(_lines(text), raw)
                    head = next(lines, "")
                    delimiter = max(_DELIMITERS, key=head.count)
                    lines = chain([head], lines)
                    if delimiter == "|":  # sacct quotes nothing
                        yield csv.reader(lines, delimiter="|", quoting=csv.QUOTE_NONE)
                    else:
                        yield csv.reader(lines, delimiter=delimiter)
        except (OSError, EOFError, zlib.error, csv.Error) as error:
            raise HistoryError(f"{self._path} cannot be read: {error}") from error

    def _told(self, lines: Iterator[str], raw: io.BufferedReader) -> Iterator[str]:
        """The lines, keeping how far in the file they are."""
        for number, line in enumerate(lines):
            if number % _LINES_BETWEEN_TELLS == 0:
                self._at = raw.tell()
            yield line


def _lines(text: io.TextIOWrapper) -> Iterator[str]:
    """Lines of bounded length that are no comments."""
    while line := text.readline(MAX_LINE_CHARS):
        whole_line = line
        while not line.endswith(("\n", "\r")) and len(line) == MAX_LINE_CHARS:
            line = text.readline(MAX_LINE_CHARS)
        if whole_line.strip() and not whole_line.startswith("#"):
            yield whole_line.replace("\0", "\N{REPLACEMENT CHARACTER}")


class RowReader:
    """Makes runs of rows under a header."""

    def __init__(self, header: Sequence[str], source: TableSource, path: Path) -> None:
        self._source = source
        names = {_spelled(name): at for at, name in reversed(list(enumerate(header)))}
        self._header = list(header)
        self._width = len(header) - (not header or not header[-1])  # sacct -p ends lines with a |
        self._columns = {
            field: [(names[name], scale) for name, scale in known.items() if name in names]
            for field, known in _names().items()
        }
        self._absent = dict.fromkeys(self._columns, ("", 1.0))
        self._present = {field: columns for field, columns in self._columns.items() if columns}
        lacking = [names for names in _REQUIRED if not any(self._columns[n] for n in names)]
        if lacking:
            wanted = "; ".join(" or ".join(names) for names in lacking)
            raise HistoryError(
                f"{path}: no column for {wanted}; its columns are {', '.join(header)[:200]!r};"
                " expected a table of jobs with user, name, queue, gpus, submit, start, end, limit,"
                " state"
            )

    def item(self, row: Sequence[str], number: int) -> Item:
        """The run of a row, or why it is none."""
        try:
            found = self._job(row, number)
        except _MessyRowError as error:
            return Unread(f"row {number}", str(error))
        return found if isinstance(found, LeftOut) else Run(ended=found)

    def _job(self, row: Sequence[str], number: int) -> EndedJob | LeftOut:
        if len(row) != len(self._header) or any(row[self._width :]):
            raise _MessyRowError("another number of cells than the header")
        if row == self._header:
            return LeftOut(HEADER)
        text = self._absent | {f: _cell(row, columns) for f, columns in self._present.items()}
        job_id = text["job_id"][0]
        if self._source.scheduler == "slurm" and _STEP.fullmatch(job_id):
            return LeftOut(STEP)
        state = self._state(text["state"][0])
        if state is GOING_ON:
            return LeftOut(GOING_ON)
        gpus = asked_gpus(text["gpus"][0] or "0")
        if gpus is None:
            raise _MessyRowError("gpus is no number of GPUs")
        if not gpus.count:
            return LeftOut(NO_GPUS)
        submit_s, start_s, end_s = self._times(text)
        limit = limit_s(*text["limit"])
        if state is None:
            reached = limit is not None and start_s is not None and end_s - start_s >= limit
            state = JobState.TIMEOUT if reached else JobState.COMPLETED
        assert isinstance(state, JobState)
        kind = text["gpu_type"][0] or gpus.type
        nodes = whole(text["nodes"][0]) or 0
        cpus, memory = self._machine(row, text, nodes)
        return EndedJob(
            scheduler=self._source.scheduler,
            cluster=text["cluster"][0] or self._source.cluster,
            job_id=job_id or f"row-{number}",
            name=text["name"][0],
            user=text["user"][0],
            account=text["account"][0],
            partition=text["partition"][0],
            qos=text["qos"][0],
            state=state,
            submit_s=submit_s,
            start_s=start_s,
            end_s=end_s,
            limit_s=limit,
            gpus=gpus.count,
            gpu_type=None if kind is None else gpu_type(kind),
            nodes=nodes,
            node_names=(),
            stated=text["stated"][0],
            submit_line=text["submit_line"][0],
            constraint=text["constraint"][0],
            cpus=cpus,
            memory_bytes=memory,
            script=text["script"][0],
            directory=text["directory"][0],
        )

    def _state(self, text: str) -> JobState | str | None:
        if not self._source.keep_unknown:
            return _state(text)
        try:
            return _state(text) or JobState.UNKNOWN
        except _MessyRowError:
            return JobState.UNKNOWN

    def _machine(
        self, row: Sequence[str], text: Mapping[str, Scaled], nodes: int
    ) -> tuple[int | None, int | None]:
        """CPUs and memory, from columns of their own or from a list of TRES."""
        cpus, memory = whole(text["cpus"][0] or "-"), text["memory"]
        for at, _ in self._columns["gpus"]:
            if "=" in row[at]:
                cpus = cpus or whole(tres_value(row[at], "cpu") or "-")
                memory = memory if memory[0] else (tres_value(row[at], "mem"), MIB)
        return cpus, memory_bytes(*memory, cpus, nodes)

    def _times(self, text: Mapping[str, Scaled]) -> tuple[float, float | None, float]:
        """Submission, start and end in Unix seconds; the start is None where it never started."""
        submit_s, start_s, end_s = (self._moment(text, name) for name in ("submit", "start", "end"))
        if submit_s is None:
            raise _MessyRowError("no submit time")
        waited_s, ran_s = duration_s(*text["wait"]), duration_s(*text["elapsed"])
        if not start_s and not self._columns["start"] and waited_s is not None:
            start_s = submit_s + waited_s
        if not end_s and start_s and ran_s is not None:
            end_s = start_s + ran_s
        if not end_s:
            raise _MessyRowError("no end time")
        start_s = start_s or (None if submit_s else start_s)  # 0 is a time where a log begins at 0
        if start_s is not None and submit_s - SKEW_S <= start_s < submit_s:
            start_s = submit_s
        if start_s is not None and start_s < submit_s:
            raise _MessyRowError("starts before it was submitted")
        if end_s < (submit_s if start_s is None else start_s):
            raise _MessyRowError("ends before it starts")
        return submit_s, start_s, end_s

    def _moment(self, text: Mapping[str, Scaled], field: str) -> float | None:
        cell = text[field][0]
        try:
            return moment_s(cell, self._source.zone) if cell else None
        except (ValueError, OverflowError):
            raise _MessyRowError(f"{field} is no time") from None


def _cell(row: Sequence[str], columns: Sequence[tuple[int, float]]) -> Scaled:
    """The first column of a field that says something, and its scale; empty where none does."""
    for at, scale in columns:
        value = row[at].strip()
        if value and (value[0].isdigit() or value.lower() not in _missing()):
            return value, scale
    return "", 1.0


@lru_cache(2**12)
def _state(text: str) -> JobState | str | None:
    """How a job ended, GOING_ON where it has not, None where nothing says."""
    word = text.split()[0].lower() if text else ""
    if not word:
        return None
    if word in _words()["going_on"]:
        return GOING_ON
    for state, words in _words()["states"].items():
        if word in words:
            return JobState(state)
    raise _MessyRowError("an unknown state")


def _spelled(name: str) -> str:
    return re.sub(r"[\s_.-]", "", name).lower()


@cache
def _words() -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.safe_load(
        Path(__file__).with_name("columns.yaml").read_text(encoding="utf-8")
    )
    return found


@cache
def _missing() -> frozenset[str]:
    return frozenset(_words()["missing"])


@cache
def _names() -> Mapping[str, Mapping[str, float]]:
    """The names of each field, the most telling first, with what a bare number is multiplied by."""
    columns = _words()["columns"]
    return {
        field: names if isinstance(names, Mapping) else dict.fromkeys(names, 1.0)
        for field, names in columns.items()
    }
