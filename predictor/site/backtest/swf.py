"""Reads the Standard Workload Format of the Parallel Workloads Archive, version 2.2.

https://www.cs.huji.ac.il/labs/parallel/workload/swf.html: header comments ``; Key: value``, then a
job a line in 18 fields, -1 where a value is missing. The format knows processors, not GPUs: a GPU
is a stated number of processors.
"""

from __future__ import annotations

import gzip
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import TraceError
from ..replay import Pool
from .workload import LimitBounds, PastJob, Workload, workload_of

FIELDS = 18
POOL = "cluster"
# Field numbers, from 0.
_SUBMIT, _WAIT, _RUN, _ALLOCATED, _REQUESTED, _LIMIT, _STATUS = 1, 2, 3, 4, 7, 8, 10
# Status of a part of a job that was checkpointed or swapped out; its summary line has 0 or 1.
PARTS = (2.0, 3.0, 4.0)
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwfJob:
    """One job line: times in seconds, None where missing; ``submit_s`` from the log's start."""

    submit_s: float
    wait_s: float | None
    run_s: float | None
    processors: int | None
    limit_s: float | None
    status: int | None


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
    except (OSError, EOFError) as error:
        raise TraceError(f"{path} cannot be read: {error}") from error
    if not jobs:
        raise TraceError(f"{path} holds no job of {FIELDS} fields in the Standard Workload Format")
    return SwfFile(header=header, jobs=tuple(jobs), malformed=malformed)


def workload_of_swf(
    file: SwfFile, *, processors_per_gpu: float = 1.0, pool: Pool | None = None, bounds: LimitBounds
) -> Workload:
    """The jobs on one pool, by default the machine of the header.

    A job's GPUs are its processors over ``processors_per_gpu``, rounded up. A job that was
    cancelled before it ran, and a part of a job that has a summary line, are skipped.
    """
    if not (math.isfinite(processors_per_gpu) and processors_per_gpu > 0):
        raise TraceError(f"processors_per_gpu={processors_per_gpu:g}: a number above 0 is accepted")
    skipped = Counter(dict(file.malformed))
    jobs = []
    for job in file.jobs:
        found = _past(job, processors_per_gpu, file.start_s)
        if isinstance(found, str):
            skipped[found] += 1
        else:
            jobs.append(found)
    if pool is not None:
        pool = replace(pool, name=POOL)
    elif file.processors is not None:
        pool = Pool(name=POOL, gpus=max(1, math.floor(file.processors / processors_per_gpu)))
    pools = () if pool is None else (pool,)
    return workload_of(jobs, pools=pools, bounds=bounds, skipped=skipped)


def _lines(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        packed = file.read(len(_GZIP)) == _GZIP
    with (gzip.open if packed else open)(path, "rt", encoding="utf-8", errors="replace") as text:
        for line in text:
            if stripped := line.strip():
                yield stripped


def _job(words: list[str]) -> SwfJob | str:
    if len(words) != FIELDS:
        return f"not {FIELDS} fields"
    try:
        fields = [float(word) for word in words]
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
        submit_s=fields[_SUBMIT],
        wait_s=_known(fields[_WAIT]),
        run_s=_known(fields[_RUN]),
        processors=None if processors is None else math.ceil(processors),
        limit_s=fields[_LIMIT] if fields[_LIMIT] > 0 else None,
        status=None if fields[_STATUS] < 0 else int(fields[_STATUS]),
    )


def _past(job: SwfJob, processors_per_gpu: float, origin_s: float) -> PastJob | str:
    if job.run_s is None:
        return "never ran"
    if job.processors is None:
        return "no number of processors"
    return PastJob(
        submit_s=origin_s + job.submit_s,
        start_s=origin_s + job.submit_s + (job.wait_s or 0.0),
        run_s=job.run_s,
        gpus=math.ceil(job.processors / processors_per_gpu),
        pool=POOL,
        limit_s=job.limit_s,
        censored=job.limit_s is not None and job.run_s >= job.limit_s,
    )


def _known(value: float) -> float | None:
    return value if value >= 0 else None
