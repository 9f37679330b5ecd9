"""Reads the Standard Workload Format of the Parallel Workloads Archive, version 2.2.

https://www.cs.huji.ac.il/labs/parallel/workload/swf.html: header comments ``; Key: value``, then a
job a line in 18 fields, -1 where a value is missing. The format knows processors, not GPUs: a GPU
is a stated number of processors.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import TraceError
from ..ended_job import EndedJob, JobState
from .cells import UNLIMITED_S
from .ingest import Item, Unread
from .run import Run

FIELDS = 18
SCHEDULER = "swf"
# Field numbers, from 0.
_SUBMIT, _WAIT, _RUN, _ALLOCATED, _REQUESTED, _LIMIT, _MEMORY, _STATUS = 1, 2, 3, 4, 7, 8, 9, 10
_USER, _GROUP, _PROGRAM, _QUEUE, _PARTITION = 11, 12, 13, 14, 15
# Status of a part of a job that was checkpointed or swapped out; its summary line has 0 or 1.
PARTS = (2.0, 3.0, 4.0)
_CANCELLED = 5
_STATES: Mapping[int | None, JobState] = {
    0: JobState.FAILED,
    _CANCELLED: JobState.CANCELLED,
}
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwfJob:
    """One job line: times in seconds, None where missing; ``submit_s`` from the log's start.

    ``memory_kb`` is what a processor asked for, ``queue`` the partition where there is no queue.
    """

    number: int
    submit_s: float
    wait_s: float | None
    run_s: float | None
    processors: int | None
    limit_s: float | None
    status: int | None
    memory_kb: float | None
    user: int | None
    group: int | None
    program: int | None
    queue: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SwfFile:
    """Header comments by key, the jobs, and how many lines could not be read, by reason."""

    header: Mapping[str, str]
    jobs: tuple[SwfJob, ...]
    malformed: Mapping[str, int]

    @property
    def processors(self) -> int | None:
        """Processors of the machine: MaxProcs, else MaxNodes; None where neither is stated."""
        for key in ("MaxProcs", "MaxNodes"):
            word = self.header.get(key, "").split(" ")[0]
            if word.isdecimal() and int(word) > 0:
                return int(word)
        return None

    @property
    def start_s(self) -> float:
        """Unix seconds of the log's start, 0 where it is not stated."""
        word = self.header.get("UnixStartTime", "").split(" ")[0]
        return float(word) if word.isdecimal() else 0.0


def read_swf(path: Path) -> SwfFile:
    """A file, gzipped or not; raises TraceError where it cannot be read or holds no job."""
    header: dict[str, str] = {}
    jobs: list[SwfJob] = []
    malformed: Counter[str] = Counter()
    try:
        for line in _lines(path):
            if line.startswith(";"):
                key, _, value = line.lstrip("; \t").partition(":")
                header.setdefault(key.strip(), value.strip())
                continue
            found = _job(line.split())
            if isinstance(found, str):
                malformed[found] += 1
            else:
                jobs.append(found)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{path} cannot be read: {error}") from error
    if not jobs:
        raise TraceError(f"{path} holds no job of {FIELDS} fields in the Standard Workload Format")
    return SwfFile(header=header, jobs=tuple(jobs), malformed=malformed)


def runs_of_swf(
    file: SwfFile, *, processors_per_gpu: float = 1.0, cluster: str = ""
) -> Iterator[Item]:
    """The jobs as runs of the history, their users, groups, programs and queues by number.

    A job's GPUs are its processors over ``processors_per_gpu``, rounded up.
    """
    check_processors_per_gpu(processors_per_gpu)
    for reason, number in file.malformed.items():
        yield from (Unread("a line", reason) for _ in range(number))
    for job in file.jobs:
        yield _run(job, processors_per_gpu, file.start_s, cluster)


def check_processors_per_gpu(processors_per_gpu: float) -> None:
    """Raises TraceError for a number that no machine has."""
    if not (math.isfinite(processors_per_gpu) and processors_per_gpu > 0):
        raise TraceError(
            f"invalid processors_per_gpu={processors_per_gpu:g}; expected a number above 0"
        )


def _lines(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        packed = file.read(len(_GZIP)) == _GZIP
    with (gzip.open if packed else open)(path, "rt", encoding="utf-8", errors="replace") as text:
        for line in text:
            if stripped := line.strip():
                yield stripped


def _job(words: list[str]) -> SwfJob | str:
    if len(words) < FIELDS:
        return f"fewer than {FIELDS} fields"
    try:
        fields = [float(word) for word in words[:FIELDS]]
    except ValueError:
        return "a field is not a number"
    if not all(map(math.isfinite, fields)):
        return "a field is not a finite number"
    if fields[_SUBMIT] < 0:
        return "no submit time"
    if fields[_STATUS] in PARTS:
        return "part of a job that has a line of its own"
    processors = next((p for p in (fields[_ALLOCATED], fields[_REQUESTED]) if p > 0), None)
    return SwfJob(
        number=int(fields[0]),
        submit_s=fields[_SUBMIT],
        wait_s=_known(fields[_WAIT]),
        run_s=_known(fields[_RUN]),
        processors=None if processors is None else math.ceil(processors),
        limit_s=fields[_LIMIT] if 0 < fields[_LIMIT] < UNLIMITED_S else None,
        status=None if fields[_STATUS] < 0 else int(fields[_STATUS]),
        memory_kb=fields[_MEMORY] if fields[_MEMORY] > 0 else None,
        user=_index(fields[_USER]),
        group=_index(fields[_GROUP]),
        program=_index(fields[_PROGRAM]),
        queue=_index(fields[_QUEUE]) or _index(fields[_PARTITION]),
    )


def _run(job: SwfJob, processors_per_gpu: float, origin_s: float, cluster: str) -> Item:
    name = f"job {job.number}"
    if job.run_s is None and job.status != _CANCELLED:
        return Unread(name, "no run time")
    if job.processors is None:
        return Unread(name, "no number of processors")
    submit_s = origin_s + job.submit_s
    end_s = submit_s + (job.wait_s or 0.0) + (job.run_s or 0.0)
    reached = job.limit_s is not None and (job.run_s or 0.0) >= job.limit_s
    state = JobState.TIMEOUT if reached else _STATES.get(job.status, JobState.COMPLETED)
    memory_kb, processors = job.memory_kb, job.processors
    return Run(
        ended=EndedJob(
            scheduler=SCHEDULER,
            cluster=cluster,
            job_id=str(job.number),
            name=_numbered("program", job.program),
            user=_numbered("user", job.user),
            account=_numbered("group", job.group),
            partition=_numbered("queue", job.queue),
            state=state,
            submit_s=submit_s,
            start_s=None if job.run_s is None else submit_s + (job.wait_s or 0.0),
            end_s=end_s,
            limit_s=job.limit_s,
            gpus=math.ceil(processors / processors_per_gpu),
            cpus=processors,
            memory_bytes=None if memory_kb is None else round(memory_kb * 1024 * processors),
        )
    )


def _numbered(kind: str, number: int | None) -> str:
    return "" if number is None else f"{kind} {number}"


def _known(value: float) -> float | None:
    return value if value >= 0 else None


def _index(value: float) -> int | None:
    """The number of a user, a queue and so on; some logs count from 0."""
    return int(value) if value >= 0 else None
