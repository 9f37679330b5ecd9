"""When running jobs end and pending ones start: printed progress, similar runs, and a replay."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log

import numpy as np
from numpy.typing import NDArray

from predictor.site.capacity.live import Live, LiveJob
from predictor.site.progress.reader import ProgressKind
from predictor.site.replay import After, Away, Gates, Pool, Throttle, Trace
from predictor.site.replay import replay as replayed
from predictor.site.similar.estimate import Estimate, estimate_job
from predictor.site.similar.memory import SiteMemory
from predictor.site.similar.request import JobRequest, stated_fields

from .cluster import SlurmJob
from .limit import MINUTE_S
from .mark import JobMark, parse_mark
from .similar_runs import MIB
from .watch.reports import progress_of

Floats = NDArray[np.float64]
DRAWS = 15
SEED = 17
LOW, HALF, HIGH = 0.05, 0.5, 0.95
LEAST_S = 30.0  # slurmctld looks at ends and limits so often
UNLIMITED_S = 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class Moment:
    """A time in Unix seconds, and between which two it is in nine of ten draws."""

    expected_s: float
    low_s: float
    high_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEta:
    """One job: when it starts (started) and ends, and what that rests on; None where unknown."""

    job_id: str
    user: str
    name: str
    state: str
    gpus: int
    start: Moment | None
    end: Moment | None
    basis: str


@dataclass(frozen=True, slots=True)
class RunTime:
    """How long a job still runs, or will: draws (n,) in seconds, and what they rest on."""

    draws: Sequence[float]
    basis: str


def etas(live: Live, queue: Iterable[SlurmJob], memory: SiteMemory) -> tuple[JobEta, ...]:
    """Of all GPU jobs of a queue, running ones by their end, then pending ones by their start."""
    known = {job.label: job for job in queue}
    rng = np.random.default_rng(SEED)
    levels = rng.permuted(np.tile((np.arange(DRAWS) + 0.5) / DRAWS, (len(live.jobs), 1)), axis=1)
    times = [
        _run_time(job, known.get(job.job_id), memory, live.at_s, levels[at])
        for at, job in enumerate(live.jobs)
    ]
    starts = _starts(live, times)
    found = [
        _eta(job, live.at_s, took, start)
        for job, took, start in zip(live.jobs, times, starts, strict=True)
    ]
    far = float("inf")
    return tuple(sorted(found, key=lambda e: (e.state != "R", e.end.expected_s if e.end else far)))


def _run_time(
    job: LiveJob,
    record: SlurmJob | None,
    memory: SiteMemory,
    now_s: float,
    levels: Sequence[float],
) -> RunTime:
    """By printed progress, else by similar runs, of which a running job has outlived some."""
    ran_s = 0.0 if job.start_s is None else max(0.0, now_s - job.start_s)
    limit_s = UNLIMITED_S if job.limit_s is None else job.limit_s
    left_s = max(LEAST_S, limit_s - ran_s)
    if record is not None and job.start_s is not None:
        reading = progress_of(record)
        if reading.kind is ProgressKind.TRAINING and reading.remaining_s is not None:
            remaining_s = min(reading.remaining_s, left_s)
            of = "" if reading.total is None else f" of {reading.total:g}"
            basis = f"printed: {reading.unit} {reading.at:g}{of}"
            return RunTime([max(1.0, remaining_s)] * len(levels), basis)
    mark = parse_mark(record.admin_comment) if record is not None else None
    found = estimate_job(_request(job, mark), memory)
    if not found.similar and mark is not None and mark.expected_s and mark.upper_s:
        ends = [each for each in (mark.expected_s, mark.upper_s) if each > ran_s]
        total_s = ends[0] if ends else limit_s
        return RunTime([max(LEAST_S, min(total_s, limit_s) - ran_s)] * len(levels), "submit")
    draws = [max(LEAST_S, min(_outlived(found, ran_s, x), limit_s) - ran_s) for x in levels]
    first = next(iter(found.similar), None)
    basis = f"{first.seen} runs {first.similarity.words}" if first else "limit"
    return RunTime(draws, basis)


def _outlived(found: Estimate, ran_s: float, level: float) -> float:
    """The quantile of those jobs that run longer than this one has."""
    passed = found.times.share_below(log(ran_s)) if ran_s > 1 else 0.0
    return found.times.quantile_s(min(passed + level * (1 - passed), 1.0))


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


def _starts(live: Live, times: Sequence[RunTime]) -> list[list[float] | None]:
    """Seconds from now to the start of each job, for each draw; None for one that cannot start."""
    placed = [at for at, job in enumerate(live.jobs) if _may_start(job, live.pools)]
    if not placed:
        return [None] * len(live.jobs)
    order = sorted(placed, key=lambda at: (live.jobs[at].start_s is None, -live.jobs[at].priority))
    jobs = [live.jobs[at] for at in order]
    running = np.array([job.start_s is not None for job in jobs])
    limits = np.array([_left_s(job, live.at_s) for job in jobs])
    may = np.array([[_fits(job, pool) for pool in live.pools] for job in jobs])
    gates = _gates(jobs)
    found: list[list[float] | None] = [None] * len(live.jobs)
    for at in order:
        found[at] = []
    for draw in range(DRAWS):
        run = np.array([min(times[at].draws[draw], limits[row]) for row, at in enumerate(order)])
        trace = Trace(
            submit_s=np.array([_soonest_s(job, live.at_s) for job in jobs]),
            gpus=np.array([job.gpus for job in jobs], dtype=np.int64),
            limit_s=limits,
            run_s=np.where(may, run[:, None], np.nan),
            priority=np.arange(len(jobs), 0, -1),
            runs=running,
        )
        start_s = replayed(trace, live.pools, gates=gates, away=_from_now(live)).start_s
        for row, at in enumerate(order):
            starts = found[at]
            assert starts is not None
            starts.append(float(start_s[row]))
    return found


def _from_now(live: Live) -> tuple[Away, ...]:
    return tuple(
        replace(one, from_s=one.from_s - live.at_s, until_s=one.until_s - live.at_s)
        for one in live.away
    )


def _may_start(job: LiveJob, pools: Sequence[Pool]) -> bool:
    waits = job.waits
    stands = job.start_s is None and (job.held or bool(waits.never) or bool(waits.reservation))
    return not stands and any(_fits(job, pool) for pool in pools)


def _fits(job: LiveJob, pool: Pool) -> bool:
    return job.gpu_type in (None, pool.name) and job.gpus <= pool.gpus


def _left_s(job: LiveJob, now_s: float) -> float:
    limit_s = UNLIMITED_S if job.limit_s is None else job.limit_s
    return max(LEAST_S, limit_s if job.start_s is None else job.start_s + limit_s - now_s)


def _soonest_s(job: LiveJob, now_s: float) -> float:
    return 0.0 if job.waits.not_before_s is None else max(0.0, job.waits.not_before_s - now_s)


def _gates(jobs: Sequence[LiveJob]) -> Gates:
    """What jobs wait for besides room; of jobs that are not replayed nothing is waited for."""
    rows = {job.job_id: row for row, job in enumerate(jobs)}
    arrays: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for row, job in enumerate(jobs):
        if job.waits.at_most is not None:
            arrays[job.array, job.waits.at_most].append(row)
    return Gates(
        after=tuple(
            After(job=row, other=rows[one.job_id], started=one.started, delay_s=one.delay_s)
            for row, job in enumerate(jobs)
            for one in job.waits.after
            if one.job_id in rows
        ),
        any_of=frozenset(row for row, job in enumerate(jobs) if job.waits.any_of),
        throttles=tuple(Throttle(jobs=tuple(of), at_most=n) for (_, n), of in arrays.items()),
    )


def _eta(job: LiveJob, now_s: float, time_: RunTime, starts: list[float] | None) -> JobEta:
    draws = np.array(time_.draws)
    waits = job.start_s is None
    begin = None if starts is None else now_s + np.array(starts)
    start = _moment(begin) if waits and begin is not None else None
    if not waits and job.start_s is not None:
        start = Moment(job.start_s, job.start_s, job.start_s)
    end = _moment(now_s + draws) if not waits else None
    if waits and begin is not None:
        end = _moment(begin + draws)
    reason = job.waits.never or ("held" if job.held else "") or job.waits.text
    return JobEta(
        job_id=job.job_id,
        user=job.user,
        name=job.name,
        state="PD" if waits else "R",
        gpus=job.gpus,
        start=start,
        end=end,
        basis="; ".join(part for part in (time_.basis, reason) if part),
    )


def _moment(draws: Floats) -> Moment:
    low, half, high = np.quantile(draws, (LOW, HALF, HIGH)).tolist()
    return Moment(half, low, high)


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


def _in(moment: Moment | None, now_s: float) -> str:
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
