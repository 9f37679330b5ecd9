"""When running jobs end and pending ones start: printed progress, similar runs, and a replay."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from predictor.site.capacity.live import Live, LiveJob
from predictor.site.expected_starts import (
    LEAST_S,
    ExpectedTime,
    draw_levels,
    expected_starts,
    limit_left_s,
)
from predictor.site.progress.reader import ProgressKind
from predictor.site.replay import Floats
from predictor.site.similar.estimate import estimate_job
from predictor.site.similar.memory import SiteMemory
from predictor.site.similar.request import JobRequest, stated_fields

from .cluster import SlurmJob
from .limit import MINUTE_S
from .mark import JobMark, parse_mark
from .similar_runs import MIB
from .watch.reports import progress_of


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEta:
    """One job: when it starts (started) and ends, and what that rests on; None where unknown."""

    job_id: str
    user: str
    name: str
    state: str
    gpus: int
    start: ExpectedTime | None
    end: ExpectedTime | None
    basis: str


def etas(live: Live, queue: Iterable[SlurmJob], memory: SiteMemory) -> tuple[JobEta, ...]:
    """Of all GPU jobs of a queue, running ones by their end, then pending ones by their start."""
    known = {job.label: job for job in queue}
    levels = draw_levels(len(live.jobs))
    run_s, bases = np.zeros(levels.shape), list[str]()
    for at, job in enumerate(live.jobs):
        drawn, basis = _run_time(job, known.get(job.job_id), memory, live.at_s, levels[at])
        run_s[at] = drawn
        bases.append(basis)
    starts = live.at_s + expected_starts(live, run_s)
    found = [
        _eta(job, live.at_s, run_s[at], starts[at], bases[at]) for at, job in enumerate(live.jobs)
    ]
    far = float("inf")
    return tuple(sorted(found, key=lambda e: (e.state != "R", e.end.expected_s if e.end else far)))


def _run_time(
    job: LiveJob, record: SlurmJob | None, memory: SiteMemory, now_s: float, levels: Floats
) -> tuple[Floats | float, str]:
    """Seconds (d,) that it still runs, or will, and what that rests on: printed or similar runs."""
    ran_s = 0.0 if job.start_s is None else max(0.0, now_s - job.start_s)
    left_s = limit_left_s(job, now_s)
    if record is not None and job.start_s is not None:
        reading = progress_of(record)
        if reading.kind is ProgressKind.TRAINING and reading.remaining_s is not None:
            of = "" if reading.total is None else f" of {reading.total:g}"
            basis = f"printed: {reading.unit} {reading.at:g}{of}"
            return max(1.0, min(reading.remaining_s, left_s)), basis
    mark = parse_mark(record.admin_comment) if record is not None else None
    found = estimate_job(_request(job, mark), memory)
    if not found.similar and mark is not None and mark.expected_s and mark.upper_s:
        ends = [each for each in (mark.expected_s, mark.upper_s) if each > ran_s]
        return min(max(LEAST_S, ends[0] - ran_s), left_s) if ends else left_s, "submit"
    drawn = [max(LEAST_S, min(found.left_s(level, ran_s), left_s)) for level in levels]
    first = next(iter(found.similar), None)
    return np.array(drawn), f"{first.seen} runs {first.similarity.words}" if first else "limit"


def _request(job: LiveJob, mark: JobMark | None) -> JobRequest:
    own_s = job.limit_s
    if mark is not None and mark.own is not None:
        own = mark.own_min
        own_s = None if own is None or own == float("inf") else own * MINUTE_S
    return JobRequest(
        user=job.user,
        account=job.account,
        name=job.name,
        partition=job.partition,
        gpus=job.gpus,
        gpu_type=job.gpu_type or "",
        cpus=None if mark is None else mark.cpus,
        memory_bytes=None if mark is None or mark.mem is None else mark.mem * MIB,
        limit_s=own_s,
        script="" if mark is None else mark.script or "",
        **stated_fields(job.asked),
    )


def _eta(job: LiveJob, now_s: float, run_s: Floats, starts_s: Floats, basis: str) -> JobEta:
    waits = job.start_s is None
    begins_s = starts_s if waits else np.full_like(run_s, now_s)
    started = np.full_like(run_s, job.start_s or 0.0)
    reason = job.waits.never or ("held" if job.held else "") or job.waits.text
    return JobEta(
        job_id=job.job_id,
        user=job.user,
        name=job.name,
        state="PD" if waits else "R",
        gpus=job.gpus,
        start=ExpectedTime.of(starts_s if waits else started),
        end=ExpectedTime.of(begins_s + run_s),
        basis="; ".join(part for part in (basis, reason) if part),
    )


def table(found: Iterable[JobEta], now_s: float | None = None) -> list[Mapping[str, str]]:
    """Columns as squeue has them; times are from now on."""
    now = time.time() if now_s is None else now_s
    return [
        {
            "JOBID": one.job_id,
            "USER": one.user[:10],
            "NAME": one.name[:12],
            "ST": one.state,
            "GPUS": str(one.gpus),
            "STARTS_IN": "" if one.state == "R" else _in(one.start, now),
            "ENDS_IN": _in(one.end, now),
            "BY": one.basis,
        }
        for one in found
    ]


def _in(moment: ExpectedTime | None, now_s: float) -> str:
    if moment is None:
        return "N/A"
    low, half, high = (
        clock(max(0.0, s - now_s)) for s in (moment.low_s, moment.expected_s, moment.high_s)
    )
    return half if low == high else f"{half} ({low}..{high})"


def clock(seconds: float) -> str:
    """``1-02:30`` or ``2:30``: days, hours and minutes, rounded."""
    minutes = round(seconds / 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days}-{hour:02d}:{minute:02d}" if days else f"{hour}:{minute:02d}"
