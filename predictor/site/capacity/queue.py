"""What the queue still needs, and when each waiting job starts and ends: replays of many draws.

The run time of a job is drawn from its estimate. In a draw all err in part together
(``expected_starts.draw_levels``). Nothing ends before it is through: failures are not foreseen.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from profiles.gpus import known_gpu

from ...estimate.core import Predictor
from ..expected_starts import drawn_s, in_order, replayed
from ..replay import Floats, Pool
from ..similar.estimate import Estimate, PhysicsView, estimate_job
from ..similar.memory import SiteMemory
from ..similar.past_runs import PastRun
from ..similar.request import JobRequest
from .configurations import TAIL
from .jobs import COLUMNS, UNREAD, JobSource, run_of
from .live import Live, LiveJob
from .report_data import Backlog, Range, SetAside, WaitingJob

DRAWS = 40
ANY = "any"
Estimates = Callable[[JobRequest], Estimate]
# So many of the jobs that ended last teach where the site learned nothing.
TEACHING_JOBS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """The backlog by GPU type, every waiting job by its start, and jobs that are left out."""

    backlog: tuple[Backlog, ...] = ()
    queue: tuple[WaitingJob, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    notes: tuple[str, ...] = ()


def queue_at(source: JobSource, at_s: float) -> Live:
    """The queue of a scheduler in order, else jobs submitted before ``at_s`` that had not ended."""
    live = source.live
    if live is not None:
        jobs = [job for job in live.jobs if job.request.gpus]
    else:
        live = Live(scheduler=source.kind, cluster="", at_s=at_s, jobs=(), pools=())
        rows = _gpu_jobs(source.frame, at_s).filter(
            pl.col("end_s").is_null() | (pl.col("end_s") > at_s)
        )
        started = pl.when(pl.col("start_s") <= at_s).then("start_s")
        known = rows.with_columns(start_s=started).collect()
        jobs = [_live_job(row) for row in known.iter_rows(named=True)]
    return replace(live, jobs=tuple(sorted(jobs, key=in_order)))


def estimates_at(
    source: JobSource, at_s: float, pools: Sequence[Pool], predictor: Predictor
) -> Estimates:
    """Estimates by what the site learned, else by the jobs of the source that had ended."""
    physics = PhysicsView(predictor, gpus=[pool.name for pool in pools if known_gpu(pool.name)])
    site = source.memory if source.memory is not None and source.memory.seen() else None
    learned = cache(lambda: site or _learned(source.frame, at_s))  # only where somebody asks
    return lambda job: estimate_job(job, learned(), physics)


def cleared(queue: Live, pools: Sequence[Pool], estimate: Estimates) -> Cleared:
    """How the queue drains on these pools if nothing more is submitted; running jobs go on.

    A pool is taken to be at least as large as what runs in it.
    """
    waiting = [row for row, job in enumerate(queue.jobs) if job.start_s is None]
    if not waiting:
        return Cleared(notes=queue.notes)
    estimates = [estimate(job.request) for job in queue.jobs]
    left_s = drawn_s(queue, estimates, DRAWS)
    found = replayed(queue, left_s, _holding(queue, pools))
    gpus = np.array([job.request.gpus for job in queue.jobs])
    aside: defaultdict[str, list[str]] = defaultdict(list)
    types: defaultdict[str, list[int]] = defaultdict(list)
    jobs = []
    for row in waiting:
        job, known, reason = queue.jobs[row], estimates[row], found.left_out[row]
        if reason is not None:
            aside[reason].append(job.job_id)
            continue
        asked = job.request
        types[asked.gpu_type or ANY].append(row)
        jobs.append(
            WaitingJob(
                job_id=job.job_id,
                name=asked.name,
                user=asked.user,
                gpus=asked.gpus,
                gpu_type=asked.gpu_type or ANY,
                starts_s=_range_of(found.start_s[row]),
                ends_s=_range_of(found.end_s[row]),
                waits_for=job.waits.text,
                evidence="; ".join(known.evidence),
                assumptions="; ".join(known.assumptions),
            )
        )
    return Cleared(
        backlog=tuple(
            Backlog(
                gpu_type=name,
                jobs=len(rows),
                gpu_hours=_range_of(gpus[rows] @ left_s[rows] / 3600),
                drain_s=_range_of(found.end_s[rows].max(axis=0)),
            )
            for name, rows in sorted(types.items())
        ),
        queue=tuple(sorted(jobs, key=lambda job: job.starts_s.median)),
        set_aside=tuple(
            SetAside(reason=why, jobs=len(ids), example=ids[0]) for why, ids in aside.items()
        ),
        notes=queue.notes,
    )


def _gpu_jobs(frame: pl.LazyFrame, at_s: float) -> pl.LazyFrame:
    return frame.select(COLUMNS).filter(
        (pl.col("gpus") >= 1) & (pl.col("submit_s") <= at_s) & ~UNREAD
    )


def _holding(queue: Live, pools: Sequence[Pool]) -> tuple[Pool, ...]:
    sizes, held = {pool.name: pool for pool in pools}, Counter[str]()
    for job in queue.jobs:
        if job.start_s is not None and (name := job.request.gpu_type):
            held[name] += job.request.gpus
            if name not in sizes or sizes[name].gpus < held[name]:
                sizes[name] = Pool(name=name, gpus=held[name])
    return tuple(sizes.values())


def _live_job(row: Mapping[str, Any]) -> LiveJob:
    return LiveJob(
        request=JobRequest.of(run_of(row)),
        nodes=row["nodes"] or 1,
        **{name: row[name] for name in ("job_id", "submit_s", "start_s", "limit_s")},
    )


def _learned(frame: pl.LazyFrame, at_s: float) -> SiteMemory:
    """What the jobs that had ended at a moment tell of others."""
    ended = _gpu_jobs(frame, at_s).filter(pl.col("end_s") <= at_s).top_k(TEACHING_JOBS, by="end_s")
    past = [PastRun.of(run_of(row)) for row in ended.collect().iter_rows(named=True)]
    memory = SiteMemory()
    memory.learn([run for run in past if run is not None])
    return memory


def _range_of(draws: Floats) -> Range:
    """Central 95 % of draws."""
    low, median, high = np.quantile(draws, (TAIL, 0.5, 1 - TAIL)).tolist()
    return Range(low=low, median=median, high=high)
