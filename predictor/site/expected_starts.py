"""When the jobs of a queue start: replays in which each job runs as long as is estimated.

A scheduler's own expected starts take every job to run to its limit. Here each of several draws
gives every job one run time of its distribution, and a replay of the queue, planned by the limits
that the scheduler plans by, says when jobs start in it. Jobs still to come are not seen: where they
may overtake (another order than that of submission), starts are too early.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from .capacity.live import Live, LiveJob
from .history.cells import UNLIMITED_S
from .replay import After, Floats, Gates, Policy, Pool, Throttle, Trace, replay
from .similar.estimate import Estimate
from .similar.memory import SiteMemory

DRAWS = 15
SEED = 17
LOW, HALF, HIGH = 0.05, 0.5, 0.95
# Of the variance of errors, what all jobs of a queue share: by it nine in ten starts of the Graham
# log lie in their range (benchmarks/expected_starts.py).
SHARED = 0.4
LEAST_S = 1.0
# Why a waiting job is left out; one that runs in a reservation is for no reason of people.
TOO_LARGE = "it waits for more GPUs of its type than there are known to be"
HELD = "it is held until somebody releases it"
IN_RESERVATION = "it is to run in a reservation, whose jobs are not simulated"
BEHIND_ONE = "it waits for a job that is left out"
_RUNS_IN_RESERVATION = ""


@dataclass(frozen=True, slots=True)
class ExpectedTime:
    """The median of draws, and between which two nine in ten of them are; in seconds."""

    expected_s: float
    low_s: float
    high_s: float

    @classmethod
    def of(cls, draws: Floats) -> ExpectedTime | None:
        """That of draws (d,); None where they are NaN, because the time is not known."""
        if np.isnan(draws).any():
            return None
        low, half, high = np.quantile(draws, (LOW, HALF, HIGH)).tolist()
        return cls(half, low, high)


@dataclass(frozen=True, slots=True)
class QueueReplay:
    """Seconds (n, d) from the moment of a queue until jobs start and end, NaN of those left out.

    ``left_out`` (n,) says why a job is, None of the others.
    """

    start_s: Floats
    end_s: Floats
    left_out: Sequence[str | None]


def draw_levels(jobs: int, draws: int = DRAWS) -> Floats:
    """The level (jobs, draws) at which to read the run time of each job in each draw.

    The levels of a job are spread evenly, the same at every call. In one draw those of all jobs lie
    higher, in another lower (a normal copula): estimates err together.
    """
    even = (np.arange(draws) + 0.5) / draws
    own = np.random.default_rng(SEED).permuted(np.tile(ndtri(even), (jobs, 1)), axis=1)
    both = np.sqrt(SHARED) * ndtri(even) + np.sqrt(1 - SHARED) * own
    levels: Floats = even[both.argsort(axis=1).argsort(axis=1)]
    return levels


def estimated(
    live: Live, memory: SiteMemory, estimate: Callable[[LiveJob], Estimate]
) -> list[Estimate]:
    """Those of the jobs of a queue; ``memory``, that of ``estimate``, takes the running ones in.

    Of jobs submitted together the short ones end first. Those that wait run no less long than the
    others have run by now.
    """
    running = [(job, job.start_s) for job in live.jobs if job.start_s is not None]
    found = {job.job_id: estimate(job) for job, _ in running}
    for job, start_s in running:
        memory.add_running(job.request, job.submit_s, start_s, live.at_s)
    return [found.get(job.job_id) or estimate(job) for job in live.jobs]


def drawn_s(live: Live, estimates: Sequence[Estimate], draws: int = DRAWS) -> Floats:
    """Seconds (n, draws) that jobs of a queue still run, or will once they start, by estimates."""
    levels = draw_levels(len(live.jobs), draws)
    for job, one, row in zip(live.jobs, estimates, levels, strict=True):
        ran_s = 0.0 if job.start_s is None else live.at_s - job.start_s
        left_s = [one.left_s(level, ran_s) for level in row.tolist()]
        row[:] = np.clip(left_s, LEAST_S, limit_left_s(job, live.at_s))
    return levels


def replayed(
    live: Live, run_s: Floats, pools: Sequence[Pool], *, policy: Policy = Policy.EASY
) -> QueueReplay:
    """A replay of a queue on ``pools`` for each draw, from ``live.at_s`` on.

    ``run_s`` (n, d) are the seconds that a job which runs still runs, and that one which waits
    will run (``drawn_s``). A job that runs starts at 0. One
    that is held, fits nowhere, waits for a reservation or for such a job is left out.
    """
    fits = np.array(
        [
            [one.gpu_type in ("", p.name) and one.gpus <= p.gpus for p in pools]
            for one in (job.request for job in live.jobs)
        ],
        dtype=bool,
    ).reshape(len(live.jobs), len(pools))
    waits = _Conditions(live, [bool(row.any()) for row in fits])
    found = QueueReplay(np.full(run_s.shape, np.nan), np.full(run_s.shape, np.nan), waits.left_out)
    # Running jobs first, then by priority and submission: the order in which they start.
    rows = [at for at, why in enumerate(waits.left_out) if why is None]
    rows.sort(key=lambda at: in_order(live.jobs[at]))
    if not rows:
        return found
    jobs = [live.jobs[at] for at in rows]
    trace = Trace(
        submit_s=np.array([waits.soonest_s(at) for at in rows]),
        gpus=np.array([job.request.gpus for job in jobs], dtype=np.int64),
        limit_s=np.array([limit_left_s(job, live.at_s) for job in jobs]),
        run_s=np.zeros((len(jobs), len(pools))),
        priority=np.arange(len(jobs), 0, -1),
        runs=np.array([job.start_s is not None for job in jobs]),
    )
    gates = waits.gates({at: place for place, at in enumerate(rows)})
    away = tuple(
        replace(one, from_s=one.from_s - live.at_s, until_s=one.until_s - live.at_s)
        for one in live.away
        if one.until_s > live.at_s
    )
    for draw in range(run_s.shape[1]):
        drawn = replace(trace, run_s=np.where(fits[rows], run_s[rows, draw, None], np.nan))
        out = replay(drawn, pools, policy=policy, gates=gates, away=away)
        found.start_s[rows, draw], found.end_s[rows, draw] = out.start_s, out.end_s
    return found


def limit_left_s(job: LiveJob, now_s: float) -> float:
    """Seconds that a job may still run by its limit, at least LEAST_S."""
    limit_s = UNLIMITED_S if job.limit_s is None else job.limit_s
    return max(LEAST_S, limit_s if job.start_s is None else job.start_s + limit_s - now_s)


def in_order(job: LiveJob) -> tuple[float, int, float, str]:
    """What sorts a queue: running jobs by their start, then by priority and submission."""
    start_s = np.inf if job.start_s is None else job.start_s
    return start_s, -job.priority, job.submit_s, job.job_id


class _Conditions:
    """What jobs, by row, wait for besides room; ``left_out`` as in QueueReplay."""

    def __init__(self, live: Live, fits: Sequence[bool]) -> None:
        self.live, self.jobs = live, live.jobs
        self.row_of = {job.job_id: row for row, job in enumerate(live.jobs)}
        self.left_out = [_why(job, fits=ok) for job, ok in zip(live.jobs, fits, strict=True)]
        # Who waits for one that is left out, or for each other, never starts either.
        open_rows = {row for row, why in enumerate(self.left_out) if why is None}
        starts: set[int] = set()
        while new := {row for row in open_rows - starts if self._can_start(row, starts)}:
            starts |= new
        for row in open_rows - starts:
            self.left_out[row] = BEHIND_ONE

    def _can_start(self, row: int, starts: set[int]) -> bool:
        waits = self.jobs[row].waits
        met = [
            self._is_over(one.job_id) or self.row_of.get(one.job_id) in starts
            for one in waits.after
        ]
        return any(met) if waits.any_of and met else all(met)

    def _is_over(self, job_id: str) -> bool:
        """Whether a job is no reason to wait, or one for a known time."""
        row = self.row_of.get(job_id)
        return row is None or self.left_out[row] == _RUNS_IN_RESERVATION

    def soonest_s(self, row: int) -> float:
        """Seconds from the moment of the queue before which a job does not start.

        A job that runs in a reservation is not replayed: it counts as ending by its limit.
        """
        waits = self.jobs[row].waits
        others = [self.row_of[one.job_id] for one in waits.after if one.job_id in self.row_of]
        outside = [self.jobs[at] for at in others if self.left_out[at] == _RUNS_IN_RESERVATION]
        ends_s = [(job.start_s or 0.0) + (job.limit_s or 0.0) for job in outside]
        return max([0.0, *(s - self.live.at_s for s in [waits.not_before_s or 0.0, *ends_s])])

    def gates(self, place: Mapping[int, int]) -> Gates:
        """What jobs that are replayed wait for, by the places of their rows in the trace."""
        after, any_of = [], set()
        arrays: defaultdict[str, list[int]] = defaultdict(list)
        for row in place:
            job = self.jobs[row]
            if job.array:
                arrays[job.array].append(row)
            if job.waits.any_of:
                if any(self._is_over(one.job_id) for one in job.waits.after):
                    continue
                any_of.add(place[row])
            for one in job.waits.after:
                other = place.get(self.row_of.get(one.job_id, -1))
                if other is not None:
                    after.append(
                        After(job=place[row], other=other, started=one.started, delay_s=one.delay_s)
                    )
        throttles = []
        for rows in arrays.values():
            tasks = [self.jobs[row] for row in rows]
            bounds = [job.waits.at_most for job in tasks if job.waits.at_most is not None]
            if bounds:
                at_most = max(*bounds, sum(job.start_s is not None for job in tasks), 1)
                throttles.append(Throttle(jobs=tuple(place[row] for row in rows), at_most=at_most))
        return Gates(after=tuple(after), any_of=frozenset(any_of), throttles=tuple(throttles))


def _why(job: LiveJob, *, fits: bool) -> str | None:
    """Why a job is left out from the first; None where it is not."""
    if job.start_s is not None and job.reserved:
        return _RUNS_IN_RESERVATION
    if job.start_s is None and job.held:
        return HELD
    if job.start_s is None and (job.waits.never or job.waits.reservation):
        return job.waits.never or IN_RESERVATION
    return None if fits else TOO_LARGE
