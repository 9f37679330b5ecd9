"""Ended jobs from ``sacct``, day by day, so that a history of any length fits in memory.

All sources read them here: ``sacct --json`` and pyslurm build every job with its steps before they
give the first one, and pyslurm keys them by id, which loses the earlier runs of a requeued job.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

from predictor.site.ended_job import EndedJob
from predictor.site.history.cells import MIB, memory_bytes, tres_value, whole

from ..errors import SourceError
from ..hostlist import expand
from .commands import Commands
from .gres import Gpus, first, tres_gpus
from .marked import new_mark, tuples
from .words import ended_state, stated, unix_s

FIELDS = (
    "JobID",
    "Cluster",
    "User",
    "Account",
    "Partition",
    "QOS",
    "State",
    "Submit",
    "Start",
    "End",
    "TimelimitRaw",
    "AllocTRES",
    "ReqTRES",
    "NNodes",
    "NodeList",
    "ConsumedEnergyRaw",
    "Constraints",
    "JobName",
    "Comment",
    "AdminComment",
    "SubmitLine",
)
# RESIZING and REVOKED are not among them: such a job goes on, here or on another cluster
STATES = "CD,F,CA,TO,PR,NF,OOM,DL,BF,RQ"
DAY_S = 86400
_LONGEST_SLICE_S = 32 * DAY_S
_PATIENCE = 10  # sacct asks a database, which takes longer than slurmctld
_KEPT = 4096  # node lists and GPU counts, which jobs share
_MOST_ENERGY = 2.0**62  # NO_VAL64 and INFINITE64 are printed as numbers


GpuName = Callable[[str | None, tuple[str, ...]], str | None]


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row of an ended job that cannot be read, and why."""

    job_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class SliceEnd:
    """All rows of jobs that ended before this time (Unix seconds) were given."""

    at_s: float


def streamed(
    commands: Commands, since_s: float, until_s: float, gpu_name: GpuName | None = None
) -> Iterator[EndedJob | BadRow | SliceEnd]:
    """Jobs whose end is in [since_s, until_s), none of them held, and where each day is through.

    A job that was requeued has a record for each run that ended; within a day there is no order,
    and a day without any lets the next step be twice as long. ``gpu_name`` tells the GPU type from
    Slurm's and the nodes. A row that cannot be read is reported; raises SourceError where sacct
    fails.
    """
    start_s, length_s = max(float(since_s), float(DAY_S)), float(DAY_S)
    while start_s < until_s:
        end_s, empty = min(start_s + length_s, until_s), True
        for row in _read(commands, start_s, end_s):
            empty = False
            try:
                job = _job(row, gpu_name)
            except (SourceError, ValueError) as error:
                yield BadRow(row[0], str(error))
                continue
            if job is not None and start_s <= job.end_s < end_s:
                yield job
        yield SliceEnd(end_s)
        start_s = end_s
        length_s = min(length_s * 2, _LONGEST_SLICE_S) if empty else float(DAY_S)


def _read(commands: Commands, start_s: float, end_s: float) -> Generator[list[str], None, None]:
    """The rows of jobs that ended in a period, by FIELDS."""
    mark = new_mark()
    output = commands.stream(
        "sacct",
        "--noheader",
        "--allusers",
        "--allocations",
        "--duplicates",
        "--noconvert",
        "--parsable",
        f"--delimiter={mark}",
        f"--starttime={_day_and_time(start_s)}",
        f"--endtime={_day_and_time(end_s + 1)}",
        f"--state={STATES}",
        f"--format={','.join(FIELDS)}",
        timeout_s=commands.timeout_s * _PATIENCE,
    )
    with closing(output):
        yield from tuples(output, mark, len(FIELDS))


def _day_and_time(moment_s: float) -> str:
    return datetime.fromtimestamp(int(moment_s), UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _job(row: Sequence[str], gpu_name: GpuName | None = None) -> EndedJob | None:
    """The job of a row; None where it goes on. Raises SourceError and ValueError."""
    (
        job_id,
        cluster,
        user,
        account,
        partition,
        qos,
        state_text,
        submit,
        start,
        end,
        limit,
        allocated,
        requested,
        node_count,
        node_list,
        energy,
        constraint,
        name,
        comment,
        decision,
        submit_line,
    ) = row
    state, end_s = ended_state(state_text), unix_s(end)
    if state is None or end_s is None:
        return None
    gpus, names = _gpus(allocated, requested), _names(node_list)
    submit_s = unix_s(submit) or 0.0
    return EndedJob(
        scheduler="slurm",
        cluster=cluster,
        job_id=job_id,
        name=name,
        user=user,
        account=account,
        partition=partition,
        qos=qos,
        state=state,
        submit_s=submit_s,
        start_s=_start_s(start, submit_s) if names else None,
        end_s=end_s,
        limit_s=_limit_s(limit),
        gpus=gpus.count,
        gpu_type=gpus.type if gpu_name is None else gpu_name(gpus.type, names),
        nodes=len(names) or int(node_count or 0),
        node_names=names,
        stated=comment,
        decision=decision,
        submit_line=submit_line,
        constraint=constraint,
        energy_j=_energy_j(energy),
        cpus=_cpus(requested, allocated),
        memory_bytes=_memory_bytes(requested, allocated),
    )


def _start_s(start: str, submit_s: float) -> float | None:
    """When a job had these GPUs: one that was resized keeps its start, and submits anew."""
    start_s = unix_s(start)
    return None if start_s is None else max(start_s, submit_s)


@lru_cache(maxsize=_KEPT)
def _gpus(allocated: str, requested: str) -> Gpus:
    return first((tres_gpus(allocated), tres_gpus(requested)))


@lru_cache(maxsize=_KEPT)
def _cpus(requested: str, allocated: str) -> int | None:
    return whole(tres_value(requested, "cpu")) or whole(tres_value(allocated, "cpu"))


@lru_cache(maxsize=_KEPT)
def _memory_bytes(requested: str, allocated: str) -> int | None:
    text = tres_value(requested, "mem") or tres_value(allocated, "mem")
    return memory_bytes(text, MIB, None, 1)


@lru_cache(maxsize=_KEPT)
def _names(node_list: str) -> tuple[str, ...]:
    return expand(stated(node_list))


def _limit_s(text: str) -> float | None:
    return int(text) * 60.0 if text.isdecimal() else None


def _energy_j(text: str) -> float | None:
    joules = float(text) if text.isdecimal() else 0.0
    return joules if 0 < joules < _MOST_ENERGY else None
