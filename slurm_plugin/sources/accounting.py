"""Ended jobs from ``sacct``, day by day, so that a history of any length fits in memory.

All sources read them here: ``sacct --json`` and pyslurm build every job with its steps before they
give the first one, and pyslurm keys them by id, which loses the earlier runs of a requeued job.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import lru_cache

from predictor.site.history.cells import MIB, AskedGpus, asked_gpus, memory_bytes, tres_value, whole
from predictor.site.history.ingest import Through, Unread
from predictor.site.history.run import EndedJob

from ..errors import SourceError
from .commands import Commands, new_mark, rows
from .words import ended_state, expand, first_gpus, stated, unix_s

FIELDS = (
    "JobID,Cluster,User,Account,Partition,QOS,State,Submit,Start,End,TimelimitRaw,AllocTRES,"
    "ReqTRES,NNodes,NodeList,ConsumedEnergyRaw,Constraints,JobName,Comment,AdminComment,"
    "SubmitLine,WorkDir"
)
# RESIZING and REVOKED are not among them: such a job goes on, here or on another cluster
STATES = "CD,F,CA,TO,PR,NF,OOM,DL,BF,RQ"
DAY_S = 86400
_LONGEST_SLICE_S = 32 * DAY_S
_PATIENCE = 10  # sacct asks a database, which takes longer than slurmctld
_SCRIPT_HEAD = re.compile(r"^Batch Script for (\S+)\n-+\n", re.M)
_KEPT = 4096  # node lists and GPU counts, which jobs share
_MOST_ENERGY = 2.0**62  # NO_VAL64 and INFINITE64 are printed as numbers


GpuName = Callable[[str | None, tuple[str, ...]], str | None]


def streamed(
    commands: Commands, since_s: float, until_s: float, gpu_name: GpuName | None = None
) -> Iterator[EndedJob | Unread | Through]:
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
                yield Unread(f"job {row['JobID']}", str(error))
                continue
            if job is not None and start_s <= job.end_s < end_s:
                yield job
        yield Through(end_s)
        start_s = end_s
        length_s = min(length_s * 2, _LONGEST_SLICE_S) if empty else float(DAY_S)


def stored_scripts(commands: Commands, job_ids: Sequence[str]) -> Mapping[str, str]:
    """Batch scripts that accounting keeps (``AccountingStoreFlags=job_script``), by job id.

    A script may hold the line that goes before each of them: where the lines are not those of the
    jobs asked for, each job is asked for on its own. Raises SourceError where sacct fails.
    """
    text = commands.text("sacct", "--batch-script", "--jobs", ",".join(job_ids))
    _, *found = _SCRIPT_HEAD.split(text)
    if sorted(found[::2]) == sorted(job_ids):
        return dict(zip(found[::2], found[1::2], strict=True))
    if len(job_ids) > 1:
        return {
            name: text for one in job_ids for name, text in stored_scripts(commands, [one]).items()
        }
    head = _SCRIPT_HEAD.search(text)
    return {job_ids[0]: text[head.end() :]} if head is not None else {}


def _read(commands: Commands, start_s: float, end_s: float) -> Iterator[dict[str, str]]:
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
        f"--format={FIELDS}",
        timeout_s=commands.timeout_s * _PATIENCE,
    )
    with closing(output):
        yield from rows(output, mark, FIELDS.split(","))


def _day_and_time(moment_s: float) -> str:
    return datetime.fromtimestamp(int(moment_s), UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _job(row: Mapping[str, str], gpu_name: GpuName | None = None) -> EndedJob | None:
    """The job of a row; None where it goes on. Raises SourceError and ValueError."""
    state, end_s = ended_state(row["State"]), unix_s(row["End"])
    if state is None or end_s is None:
        return None
    gpus, cpus, memory = _shares(row["AllocTRES"], row["ReqTRES"])
    joules = float(energy) if (energy := row["ConsumedEnergyRaw"]).isdecimal() else 0.0
    names = _names(row["NodeList"])
    start_s = unix_s(row["Start"])
    submit_s = unix_s(row["Submit"]) or start_s  # accounting may have lost it
    if submit_s is None:
        raise ValueError("no submit time")
    return EndedJob(
        scheduler="slurm",
        cluster=row["Cluster"],
        job_id=row["JobID"],
        name=row["JobName"],
        user=row["User"],
        account=row["Account"],
        partition=row["Partition"],
        qos=row["QOS"],
        state=state,
        submit_s=submit_s,
        # one that was resized keeps its start, and submits anew
        start_s=max(start_s, submit_s) if names and start_s is not None else None,
        end_s=end_s,
        limit_s=int(limit) * 60.0 if (limit := row["TimelimitRaw"]).isdecimal() else None,
        gpus=gpus.count,
        gpu_type=gpus.type if gpu_name is None else gpu_name(gpus.type, names),
        nodes=len(names) or int(row["NNodes"] or 0),
        node_names=names,
        stated=row["Comment"],
        decision=row["AdminComment"],
        submit_line=row["SubmitLine"],
        constraint=row["Constraints"],
        energy_j=joules if 0 < joules < _MOST_ENERGY else None,
        cpus=cpus,
        memory_bytes=memory,
        directory=row["WorkDir"],
    )


@lru_cache(maxsize=_KEPT)
def _shares(allocated: str, requested: str) -> tuple[AskedGpus, int | None, int | None]:
    """GPUs a job had, else asked for; CPUs and bytes of memory it asked for first, else had."""
    cpus = (whole(tres_value(text, "cpu")) for text in (requested, allocated))
    memory = tres_value(requested, "mem") or tres_value(allocated, "mem")
    return (
        first_gpus(asked_gpus(allocated), asked_gpus(requested)),
        next((count for count in cpus if count), None),
        memory_bytes(memory, MIB, None, 1),
    )


@lru_cache(maxsize=_KEPT)
def _names(node_list: str) -> tuple[str, ...]:
    return expand(stated(node_list))
