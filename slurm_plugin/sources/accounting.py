"""Ended jobs from ``sacct``, in slices of time, so that a history of any length fits in memory.

All forms read them here: ``sacct --json`` and pyslurm build every job with its steps before they
give the first one, and pyslurm keys them by id, which loses the earlier runs of a requeued job.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from predictor.ended_job import EndedJob

from ..hostlist import expand
from .commands import Commands
from .gres import first, tres_gpus
from .marked import new_mark, rows
from .words import ended_state, stated, unix_s

FIELDS = (
    "JobID", "Cluster", "User", "Account", "Partition", "QOS", "State", "Submit", "Start", "End",
    "TimelimitRaw", "AllocTRES", "ReqTRES", "NNodes", "NodeList", "ConsumedEnergyRaw",
    "Constraints", "JobName", "Comment", "AdminComment", "SubmitLine",
)  # fmt: skip
# REQUEUED and REVOKED are not among them: such a job goes on, here or on another cluster
STATES = "CD,F,CA,TO,PR,NF,OOM,DL,BF"
DAY_S = 86400
MOST_ROWS = 50_000  # of one slice, held to be sorted: about 100 MB
_LEAST_SLICE_S = 60
_LONGEST_SLICE_S = 32 * DAY_S
_PATIENCE = 10  # sacct asks a database, which takes longer than slurmctld
_NO_ENERGY = 2**63  # NO_VAL64 and INFINITE64 are printed as numbers


class _TooManyError(Exception):
    """A slice has more rows than are held at once."""


def ended(commands: Commands, since_s: float, until_s: float | None) -> Iterator[EndedJob]:
    """Jobs whose end is in [since_s, until_s), oldest first; until now without ``until_s``.

    A job that was requeued has a record for each run that ended. A slice with too many rows is
    read again in halves, one without any lets the next be twice as long.
    """
    until_s = time.time() if until_s is None else until_s
    start_s, length_s = max(float(since_s), float(DAY_S)), float(DAY_S)
    while start_s < until_s:
        end_s = min(start_s + length_s, until_s)
        try:
            jobs = _slice(commands, start_s, end_s, limited=length_s > _LEAST_SLICE_S)
        except _TooManyError:
            length_s = max(length_s / 2, _LEAST_SLICE_S)
            continue
        yield from sorted(jobs, key=lambda job: (job.end_s, job.job_id))
        start_s = end_s
        if not jobs:
            length_s = min(length_s * 2, _LONGEST_SLICE_S)


def _slice(commands: Commands, start_s: float, end_s: float, *, limited: bool) -> list[EndedJob]:
    mark = new_mark()
    output = commands.stream(
        "sacct", "--noheader", "--allusers", "--allocations", "--duplicates", "--parsable",
        f"--delimiter={mark}", f"--starttime={_day_and_time(start_s)}",
        f"--endtime={_day_and_time(end_s + 1)}", f"--state={STATES}",
        f"--format={','.join(FIELDS)}", timeout_s=commands.timeout_s * _PATIENCE,
    )  # fmt: skip
    jobs: list[EndedJob] = []
    for row in rows(output, mark, FIELDS):
        job = _job(row)
        if job is not None and start_s <= job.end_s < end_s:
            jobs.append(job)
        if limited and len(jobs) > MOST_ROWS:
            output.close()
            raise _TooManyError
    return jobs


def _day_and_time(moment_s: float) -> str:
    return datetime.fromtimestamp(int(moment_s), UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _job(row: Mapping[str, str]) -> EndedJob | None:
    state, end_s = ended_state(row["State"]), unix_s(row["End"])
    if state is None or end_s is None:
        return None
    gpus = first((tres_gpus(row["AllocTRES"]), tres_gpus(row["ReqTRES"])))
    names = expand(stated(row["NodeList"]))
    submit_s = unix_s(row["Submit"]) or 0.0
    return EndedJob(
        scheduler="slurm", cluster=row["Cluster"], job_id=row["JobID"], name=row["JobName"],
        user=row["User"], account=row["Account"], partition=row["Partition"], qos=row["QOS"],
        state=state, submit_s=submit_s, start_s=unix_s(row["Start"]) if names else None,
        end_s=end_s, limit_s=_limit_s(row["TimelimitRaw"]), gpus=gpus.count, gpu_type=gpus.type,
        nodes=int(row["NNodes"] or 0), node_names=names, stated=row["Comment"],
        decision=row["AdminComment"], submit_line=row["SubmitLine"],
        constraint=row["Constraints"], energy_j=_energy_j(row["ConsumedEnergyRaw"]),
    )  # fmt: skip


def _limit_s(text: str) -> float | None:
    return int(text) * 60.0 if text.isdecimal() else None


def _energy_j(text: str) -> float | None:
    joules = float(text) if text.isdecimal() else 0.0
    return joules if 0 < joules < _NO_ENERGY else None
