"""Reads the Standard Workload Format of the Parallel Workloads Archive, version 2.2.

https://www.cs.huji.ac.il/labs/parallel/workload/swf.html: header comments ``; Key: value``, then a
job a line in 18 fields, -1 where a value is missing. The format knows processors, not GPUs: a GPU
is a stated number of processors.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import TraceError, reason_of
from .cells import UNLIMITED_S
from .ingest import Item, Unread
from .run import EndedJob, JobState, Run

FIELDS = 18
SCHEDULER = "swf"
# Field numbers, from 0.
_SUBMIT, _WAIT, _RUN, _ALLOCATED, _REQUESTED, _LIMIT, _MEMORY, _STATUS = 1, 2, 3, 4, 7, 8, 9, 10
_USER, _GROUP, _PROGRAM, _QUEUE, _PARTITION = 11, 12, 13, 14, 15
# Status of a part of a job that was checkpointed or swapped out; its summary line has 0 or 1.
PARTS = (2.0, 3.0, 4.0)
_CANCELLED = 5.0
_STATES = {0.0: JobState.FAILED, _CANCELLED: JobState.CANCELLED}
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwfFile:
    """Header comments by key, the jobs as runs of the history, and what is none.

    Users, groups, programs and queues are known by number.
    """

    header: Mapping[str, str]
    items: tuple[Item, ...]
    processors_per_gpu: float = 1.0

    @property
    def gpus(self) -> int | None:
        """Those of the machine: MaxProcs, else MaxNodes; None where neither is stated."""
        stated = (_whole(self.header, key) for key in ("MaxProcs", "MaxNodes"))
        processors = next(filter(None, stated), None)
        return None if processors is None else max(1, int(processors / self.processors_per_gpu))


def read_swf(path: Path, *, processors_per_gpu: float = 1.0, cluster: str = "") -> SwfFile:
    """A file, gzipped or not; a job's GPUs are its processors over ``processors_per_gpu``.

    They are rounded up. Raises TraceError where the file cannot be read or holds no job.
    """
    if not (math.isfinite(processors_per_gpu) and processors_per_gpu > 0):
        raise TraceError(
            f"invalid processors_per_gpu={processors_per_gpu:g}; expected a number above 0"
        )
    header: dict[str, str] = {}
    items: list[Item] = []
    try:
        for line in _lines(path):
            if line.startswith(";"):
                key, _, value = line.lstrip("; \t").partition(":")
                header.setdefault(key.strip(), value.strip())
            else:
                items.append(_item(line.split(), header, processors_per_gpu, cluster))
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{path} cannot be read: {reason_of(error)}") from error
    if not any(isinstance(item, Run) for item in items):
        raise TraceError(f"{path} holds no job of {FIELDS} fields in the Standard Workload Format")
    return SwfFile(header=header, items=tuple(items), processors_per_gpu=processors_per_gpu)


def _lines(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        packed = file.read(len(_GZIP)) == _GZIP
    with (gzip.open if packed else open)(path, "rt", encoding="utf-8", errors="replace") as text:
        for line in text:
            if stripped := line.strip():
                yield stripped


def _whole(header: Mapping[str, str], key: str) -> int:
    """The number that a header comment begins with, 0 where it states none."""
    word = header.get(key, "").split(" ")[0]
    return int(word) if word.isdecimal() else 0


def _item(
    words: list[str], header: Mapping[str, str], processors_per_gpu: float, cluster: str
) -> Item:
    """The run of a job line, or why it is none."""
    if len(words) < FIELDS:
        return Unread("a line", f"fewer than {FIELDS} fields")
    try:
        fields = [float(word) for word in words[:FIELDS]]
    except ValueError:
        return Unread("a line", "a field is not a number")
    if not all(map(math.isfinite, fields)):
        return Unread("a line", "a field is not a finite number")
    if fields[_SUBMIT] < 0:
        return Unread("a line", "no submit time")
    if fields[_STATUS] in PARTS:
        return Unread("a line", "part of a job that has a line of its own")
    number = int(fields[0])
    ran = fields[_RUN] >= 0
    if not ran and fields[_STATUS] != _CANCELLED:
        return Unread(f"job {number}", "no run time")
    processors = math.ceil(max(fields[_ALLOCATED], 0) or max(fields[_REQUESTED], 0))
    if not processors:
        return Unread(f"job {number}", "no number of processors")
    waited_s, run_s = max(fields[_WAIT], 0.0), max(fields[_RUN], 0.0)
    limit_s = fields[_LIMIT] if 0 < fields[_LIMIT] < UNLIMITED_S else None
    reached = limit_s is not None and run_s >= limit_s
    submit_s, origin_s = fields[_SUBMIT], _whole(header, "UnixStartTime")
    if submit_s < origin_s:  # else it is a Unix time itself
        submit_s += origin_s
    queue = _QUEUE if fields[_QUEUE] > 0 else _PARTITION
    memory_kb = fields[_MEMORY]
    return Run(
        ended=EndedJob(
            scheduler=SCHEDULER,
            cluster=cluster,
            job_id=str(number),
            name=_numbered("program", fields[_PROGRAM]),
            user=_numbered("user", fields[_USER]),
            account=_numbered("group", fields[_GROUP]),
            partition=_numbered("queue", fields[queue]),
            state=JobState.TIMEOUT if reached else _STATES.get(fields[_STATUS], JobState.COMPLETED),
            submit_s=submit_s,
            start_s=submit_s + waited_s if ran else None,
            end_s=submit_s + waited_s + run_s,
            limit_s=limit_s,
            gpus=math.ceil(processors / processors_per_gpu),
            cpus=processors,
            memory_bytes=round(memory_kb * 1024 * processors) if memory_kb > 0 else None,
        )
    )


def _numbered(kind: str, number: float) -> str:
    """The name of a user, a queue and so on; some logs count from 0."""
    return f"{kind} {int(number)}" if number >= 0 else ""
