"""Plain accounting tables as runs: a job a row, columns by the names in ``columns.yaml``.

Delimited by commas, tabs, semicolons or pipes (``sacct -P``), gzipped or not. Only when a job was
submitted and how many GPUs it had must be there; what else is missing is not known of its runs.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import time
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import tzinfo
from functools import cache, lru_cache
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

from profiles.storage import shipped_yaml

from ...errors import HistoryError, reason_of
from ...identify.grammar import stated_text
from ...identify.identify import alike, identify
from ...identify.stated import LENGTHS, SCRIPT, Stated
from ..similar.request import script_signature, wrapped_script
from . import cells
from .ingest import Item, LeftOut, Noted, Unread
from .run import EndedJob, JobState, Run

ORIGIN = "table"  # of what a row says of its training
NO_GPUS, GOING_ON = "without GPUs", "not ended"
STEP, HEADER = "a step of a job", "a repeated header"
NO_LIMIT = "a limit that is no time such as 04:00:00, 90min or a number"
ROWS_AHEAD = 10_000  # in which dates with slashes are looked at
MAX_LINE_CHARS = 1_000_000  # of a row; the rest of a longer line is skipped
MOST_NUMBERS = 50_000  # of jobs that further rows may be tasks of
SKEW_S = 60.0  # by which clocks of a cluster differ: a start so much before the submission is it
_DELIMITERS = ",|\t;"
_LINES_BETWEEN_TELLS = 1000
_TEXTS_KEPT = 2**13  # that many jobs share
_SUBMIT = frozenset(("sbatch", "srun", "salloc", "qsub", "bsub", "msub"))
_SHELL = re.compile(r"\.(?:sh|bash|sbatch|slurm|job|pbs)$")
_FILE = re.compile(r"/|\.[A-Za-z]\w{0,7}$", re.ASCII)
_GZIP = b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")  # of a name in any case
_DERIVED = 1000  # names known as they stand come first
_STEP = re.compile(r"[\d_+\[\]%,-]+\.(?:batch|extern|interactive|(\d+))", re.ASCII)  # of Slurm
_WORDS = (  # fields that are columns of the same name
    *("name", "user", "account", "partition", "qos"),
    *("stated", "submit_line", "constraint", "directory"),
)
_MOMENTS = ("submit", "start", "end")
_REQUIRED = (("submit",), ("start", "wait", "elapsed"), ("end", "elapsed"), ("gpus",))
Scaled = tuple[str, float]


class _MessyRowError(Exception):
    """A row that cannot be read: why, alike for all such rows, and the cell if it is one."""


@dataclass(eq=False)
class AccountingTable:
    """The runs of a table in a file, and how much of it is read.

    ``scheduler`` is whose jobs they are, ``cluster`` theirs where no column names one, ``zone`` of
    times that name none, None for the zone of this machine. With ``keep_unknown`` a job whose state
    is missing or no known one is a run of state UNKNOWN. Raises HistoryError where the file cannot
    be read or lacks a column that has to be there.
    """

    path: Path
    scheduler: str
    cluster: str = field(default="", kw_only=True)
    zone: tzinfo | None = field(default=None, kw_only=True)
    keep_unknown: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        self._at, self._size = 0, 1
        self._header: list[str] = []
        self._noted: Noted | None = None
        self._days_first: bool | None = None
        self._columns: dict[str, list[tuple[int, float]]] = {}
        # By cluster, number and second of submission: the starts and ends met, in their order.
        self._tasks: OrderedDict[tuple[str, str, int], dict[Any, int]] = OrderedDict()

    @property
    def share(self) -> float:
        """What part of the file was read."""
        return min(1.0, self._at / self._size)

    @property
    def assumes_starts(self) -> bool:
        """Whether no column says when jobs started, once it was read."""
        return not (self._columns["start"] or self._columns["wait"])

    def header(self) -> list[str]:
        """The names of its columns."""
        with self._rows() as rows:
            return next(rows, [])

    def __iter__(self) -> Iterator[Item]:
        with self._rows() as rows:
            self._header, self._tasks = next(rows, []), OrderedDict()
            self._find_columns()
            self._days_first = self._looked_ahead()
            for number in count(1):
                try:
                    row = next(rows, None)
                    if row is None:
                        return
                    item = self._item(row, number) if row else None
                except csv.Error:
                    item = Unread(f"row {number}", "no row of a table")
                except _MessyRowError as error:
                    reason, *cell = error.args
                    item = Unread(" ".join((f"row {number}", *map(repr, cell))), reason)
                if item is not None:
                    yield item
                if self._noted is not None and isinstance(item, Run):
                    yield self._noted
                self._noted = None

    def _looked_ahead(self) -> bool | None:
        """Whether dates begin with the day, by the first rows."""
        columns = [at for name in _MOMENTS for at, _ in self._columns[name]]
        with self._rows() as rows, suppress(csv.Error):
            ahead = (row for row in islice(rows, ROWS_AHEAD) if len(row) == len(self._header))
            return cells.days_first(row[at].strip() for row in ahead for at in columns)
        return None

    @contextmanager
    def _rows(self) -> Iterator[Iterator[list[str]]]:
        try:
            with self.path.open("rb") as raw:
                self._size = max(1, self.path.stat().st_size)
                packed = raw.peek(2).startswith(_GZIP)
                file = gzip.GzipFile(fileobj=raw) if packed else raw
                start = file.peek(2)[:2]  # spreadsheets save in UTF-16
                encoding = "utf-16-le" if start[1:] == b"\0" else "utf-8-sig"
                encoding = "utf-16" if start in _UTF16 else encoding
                with io.TextIOWrapper(file, encoding, errors="replace", newline="") as text:
                    lines = self._lines(text, raw)
                    head = next(lines, "")
                    delimiter = max(_DELIMITERS, key=head.count)
                    yield csv.reader(
                        chain([head], lines),
                        delimiter=delimiter,
                        quoting=csv.QUOTE_NONE if delimiter == "|" else csv.QUOTE_MINIMAL,  # sacct
                    )
        except (OSError, EOFError, zlib.error, csv.Error) as error:
            raise HistoryError(f"{self.path} cannot be read: {reason_of(error)}") from error

    def _lines(self, text: io.TextIOWrapper, raw: io.BufferedReader) -> Iterator[str]:
        """Lines of bounded length that are no comments, keeping how far in the file they are."""
        number = 0
        while line := text.readline(MAX_LINE_CHARS):
            whole_line = line
            while not line.endswith(("\n", "\r")) and len(line) == MAX_LINE_CHARS:
                line = text.readline(MAX_LINE_CHARS)
            if whole_line.strip() and not whole_line.startswith("#"):
                if number % _LINES_BETWEEN_TELLS == 0:
                    self._at = raw.tell()
                number += 1
                yield whole_line.replace("\0", "\N{REPLACEMENT CHARACTER}")

    @property
    def unread(self) -> tuple[str, ...]:
        """The names of columns that nothing is read from, once the header was."""
        read = {at for columns in self._columns.values() for at, _ in columns}
        return tuple(name for at, name in enumerate(self._header) if name and at not in read)

    def _find_columns(self) -> None:
        header = self._header
        self._width = len(header) - (not header or not header[-1])  # sacct -p ends lines with a |
        self._columns = {name: [] for name in _words()["columns"]}
        found = [(kind, at) for at, name in enumerate(header) if (kind := column_of(name))]
        for (name, _, scale), at in sorted(found):
            self._columns[name].append((at, scale))
        lacking = [names for names in _REQUIRED if not any(self._columns[n] for n in names)]
        if lacking:
            wanted = "; ".join(" or ".join(names) for names in lacking)
            raise HistoryError(
                f"{self.path}: no column for {wanted}; its columns are"
                f" {', '.join(header)[:200]!r}; expected a table of jobs with user, name, queue,"
                " gpus, submit, start, end, limit, state, delimited as by `sacct -P`"
            )

    def _item(self, row: Sequence[str], number: int) -> Item:
        """The run of a row, or why it is none."""
        if len(row) != len(self._header) or any(row[self._width :]):
            raise _MessyRowError("another number of cells than the header")
        if row == self._header:
            return LeftOut(HEADER)
        text = {f: _cell(row, columns) for f, columns in self._columns.items()}
        job_id = text["job_id"][0]
        nobodys = self._columns["user"] and not text["user"][0]  # elsewhere 12.0 may be a job
        step = _STEP.fullmatch(job_id)
        if step and (self.scheduler == "slurm" or nobodys or not step[1]):
            return LeftOut(STEP)
        state = _state(text["state"][0], keep_unknown=self.keep_unknown)
        if state is GOING_ON:
            return LeftOut(GOING_ON)
        gpus = cells.asked_gpus(text["gpus"][0] or "0")
        if gpus is None:
            raise _MessyRowError("gpus is no number of GPUs", text["gpus"][0])
        if not gpus.count:
            return LeftOut(NO_GPUS)
        submit_s, start_s, end_s = self._times(text)
        limit = cells.limit_s(*text["limit"])
        told = text["limit"][0]
        if limit is None and told[:1].isdigit() and cells.duration_s(*text["limit"]) is None:
            self._noted = Noted(f"row {number} {told!r}", NO_LIMIT)
        if state is None:
            if self._columns["state"] and not text["exit"][0]:
                raise _MessyRowError("no state")
            reached = limit is not None and start_s is not None and end_s - start_s >= limit
            failed = JobState.FAILED if text["exit"][0].strip("0:.") else JobState.COMPLETED
            state = JobState.TIMEOUT if reached else failed
        assert isinstance(state, JobState)
        kind = text["gpu_type"][0] or gpus.type
        nodes = cells.whole(text["nodes"][0]) or 0
        cpus, memory = cells.whole(text["cpus"][0] or "-"), text["memory"]
        for at, _ in self._columns["gpus"]:
            if "=" in row[at]:  # a list of TRES tells them too
                cpus = cpus or cells.whole(cells.tres_value(row[at], "cpu") or "-")
                memory = memory if memory[0] else (cells.tres_value(row[at], "mem"), cells.MIB)
        words: dict[str, Any] = {name: text[name][0] for name in _WORDS}
        script, line, comment = alike(text["script"][0]), words["submit_line"], words["stated"]
        words["script"], words["submit_line"], asked = _said(script, line, comment)
        cluster, job_id = text["cluster"][0] or self.cluster, job_id or f"row-{number}"
        # Many tables call all tasks of an array by one number.
        tasks = self._tasks.setdefault((cluster, job_id, int(submit_s)), {})
        task = tasks.setdefault((start_s, end_s), len(tasks))
        if len(self._tasks) > MOST_NUMBERS:
            self._tasks.popitem(last=False)
        ended = EndedJob(
            scheduler=self.scheduler,
            cluster=cluster,
            job_id=f"{job_id}_{task}" if task else job_id,
            state=state,
            submit_s=submit_s,
            start_s=start_s,
            end_s=end_s,
            limit_s=limit,
            gpus=gpus.count,
            gpu_type=None if kind is None else cells.gpu_type(kind),
            nodes=nodes,
            cpus=cpus,
            memory_bytes=cells.memory_bytes(*memory, cpus, nodes),
            **words,
        )
        return Run(ended=ended, asked=asked, origin=ORIGIN if asked else "")

    def _times(self, text: Mapping[str, Scaled]) -> tuple[float, float | None, float]:
        """Submission, start and end in Unix seconds; the start is None where it never started."""
        submit_s, start_s, end_s = (self._moment(text, name) for name in _MOMENTS)
        if not submit_s and self.scheduler == "slurm":
            submit_s = start_s or None  # accounting has lost it
        if submit_s is None:
            raise _MessyRowError("no submit time")
        waited_s, ran_s = cells.duration_s(*text["wait"]), cells.duration_s(*text["elapsed"])
        if not start_s and not self._columns["start"] and waited_s is not None:
            start_s = submit_s + waited_s
        elif ran_s is not None and self.assumes_starts:
            start_s = submit_s if end_s is None else end_s - ran_s  # no word of when it started
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
        if end_s > time.time() + SKEW_S:
            raise _MessyRowError("ends in the future", text["end"][0])
        if start_s is not None and max(start_s - submit_s, end_s - start_s) > cells.UNLIMITED_S:
            raise _MessyRowError("waits or runs for more than a year")
        return submit_s, start_s, end_s

    def _moment(self, text: Mapping[str, Scaled], field: str) -> float | None:
        cell = text[field][0]
        try:
            return cells.moment_s(cell, self.zone, days_first=self._days_first) if cell else None
        except (ValueError, OverflowError):
            two = "a date that may begin with day or month" if cell.count("/") == 2 else "no time"
            raise _MessyRowError(f"{field} is {two}", cell) from None


def column_of(name: str) -> tuple[str, int, float] | None:
    """The field a column holds, its place among such columns, and what a bare number counts.

    A name is known as it stands or less the words beside it: a unit, who gave a value. A requested
    run time is a limit, a used limit a run time. None for a name that is not known.
    """
    words, name = _words(), re.sub("_[xy]$", "", name)  # of tables that pandas merged
    if found := words["names"].get(re.sub(r"[\W_]", "", name).lower()):
        return found  # type: ignore[no-any-return]
    parts = [part.lower() for part in _PARTS.findall(name)]
    aside = {part for part in parts if part in words["aside"]}
    found = words["names"].get("".join(part for part in parts if part not in aside))
    if found is None:
        return None
    field, rank, scale = found
    if field == "elapsed" and aside & {"req", "request", "requested"}:
        field = "limit"
    elif field == "limit" and "used" in aside:
        field = "elapsed"
    beside = words["beside"].get(field, {})
    if not aside <= beside.keys():
        return None
    units = (beside[part] for part in sorted(aside) if beside[part])
    return field, rank + _DERIVED, next(units, scale)


def _cell(row: Sequence[str], columns: Sequence[tuple[int, float]]) -> Scaled:
    """The first column of a field that says something, and its scale; empty where none does."""
    for at, scale in columns:
        value = row[at].strip()
        if value and (value[0].isdigit() or value.lower() not in _words()["missing"]):
            return value, scale
    return "", 1.0


@lru_cache(_TEXTS_KEPT)
def _said(script: str, line: str, comment: str) -> tuple[str, str, str]:
    """The signature of what a job ran, its submit line, and what they state of its training.

    A cell of a script holds its text, its path, a hash, or a submit line; a submit line may be the
    command that ran. Of a script whose text is not there the arguments tell a length alone.
    """
    if script and len(script.split()) == 1 and not _FILE.search(script):
        text, signature = "", script  # a hash
    else:
        line = line or " ".join(script.splitlines()[:1])
        text = script if len(script.split()) > 1 and not _submits(script) else wrapped_script(line)
        text = text or (line if len(line.split()) > 1 and not _submits(line) else "")
        signature = script_signature(text)
    if text:
        return signature, line, stated_text(identify(comment=comment, script=text))
    words = tuple(line.split())
    file = next((at for at, word in enumerate(words) if _SHELL.search(word)), None)
    ran, arguments = (words[1:], ()) if file is None else ((), words[file + 1 :])
    return signature, line, _of_words(comment, ran, arguments)


@lru_cache(_TEXTS_KEPT)
def _of_words(comment: str, ran: tuple[str, ...], arguments: tuple[str, ...]) -> str:
    """What is stated by a comment, by what a launcher ran, and of a length by arguments."""
    stated = identify(comment=comment, argv=("srun", *ran) if ran else ())
    told = identify(argv=("python", "train.py", *arguments)).values if arguments else {}
    lengths = {name: told[name] for name in LENGTHS if name in told}
    return stated_text(stated.over(Stated(lengths, dict.fromkeys(lengths, SCRIPT))))


def _submits(line: str) -> bool:
    """Whether a line names a script whose text is elsewhere."""
    word = next(iter(line.split(maxsplit=1)), "")
    return word.rpartition("/")[2] in _SUBMIT or bool(_SHELL.search(word))


@lru_cache(2**12)
def _state(text: str, *, keep_unknown: bool) -> JobState | str | None:
    """How a job ended, GOING_ON where it has not, None where nothing says."""
    word = text.split()[0].lower() if text else ""
    if not word and not keep_unknown:
        return None
    if word in _words()["going_on"]:
        return GOING_ON
    for state, words in _words()["states"].items():
        if word in words:
            return JobState(state)
    if keep_unknown:
        return JobState.UNKNOWN
    raise _MessyRowError("an unknown state")


@cache
def _words() -> Mapping[str, Any]:
    """``columns.yaml``; ``names`` as ``column_of`` tells them, ``aside`` are all words beside."""
    found: dict[str, Any] = dict(shipped_yaml("columns.yaml", __file__))
    found["names"] = {
        name: (field, rank, float(names[name] if isinstance(names, Mapping) else 1.0))
        for field, names in found["columns"].items()
        for rank, name in enumerate(names)
    }
    found["aside"] = {word for words in found["beside"].values() for word in words}
    found["missing"] = frozenset(found["missing"])
    return found
