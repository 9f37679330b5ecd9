"""When the jobs of a queue start: replays in which each job runs as long as is estimated.

A scheduler's own expected starts take every job to run to its limit. Here each of several draws
gives every job one run time of its distribution, and a replay of the queue, planned by the limits
that the scheduler plans by, says when jobs start in it. Jobs still to come are not seen: where they
may overtake (another order than that of submission), starts are too early.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from .capacity.live import Live, LiveJob
from .replay import After, Floats, Gates, Policy, Pool, Throttle, Trace, replay

DRAWS = 15
SEED = 17
LOW, HALF, HIGH = 0.05, 0.5, 0.95
# Of the variance of errors, what all jobs of a queue share: by it nine in ten starts of the Graham
# log lie in their range (benchmarks/expected_starts.py).
SHARED = 0.4
LEAST_S = 30.0  # schedulers look at ends and limits so often
UNLIMITED_S = 365 * 86_400.0


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


def expected_starts(live: Live, run_s: Floats, *, policy: Policy = Policy.EASY) -> Floats:
    """Seconds (n, d) from ``live.at_s`` until each job of a queue starts, in each draw.

    ``run_s`` (n, d) are the seconds that a job which runs still runs, and that one which waits
    will run (``draw_levels`` and ``Estimate.left_s`` give them). A job that runs starts at 0. One
    that is held, fits nowhere, or waits for a reservation has NaN.
    """
    fits = np.array([[_fits(job, pool) for pool in live.pools] for job in live.jobs], dtype=bool)
    rows = [at for at, job in enumerate(live.jobs) if fits[at].any() and not _stands(job)]
    # Running jobs first, then by priority and submission: the order in which they start.
    rows.sort(key=lambda at: _order(live.jobs[at]))
    found: Floats = np.full(run_s.shape, np.nan)
    if not rows:
        return found
    jobs = [live.jobs[at] for at in rows]
    limit_s = np.array([limit_left_s(job, live.at_s) for job in jobs])
    soonest_s = np.array([job.waits.not_before_s or 0.0 for job in jobs])
    away = tuple(
        replace(one, from_s=one.from_s - live.at_s, until_s=one.until_s - live.at_s)
        for one in live.away
    )
    trace = Trace(
        submit_s=np.maximum(soonest_s - live.at_s, 0.0),
        gpus=np.array([job.gpus for job in jobs], dtype=np.int64),
        limit_s=limit_s,
        run_s=np.zeros((len(jobs), len(live.pools))),
        priority=np.arange(len(jobs), 0, -1),
        runs=np.array([job.start_s is not None for job in jobs]),
    )
    for draw in range(run_s.shape[1]):
        takes_s = np.minimum(run_s[rows, draw], limit_s)
        drawn = replace(trace, run_s=np.where(fits[rows], takes_s[:, None], np.nan))
        out = replay(drawn, live.pools, policy=policy, gates=_gates(jobs), away=away)
        found[rows, draw] = out.start_s
    return found


def limit_left_s(job: LiveJob, now_s: float) -> float:
    """Seconds that a job may still run by its limit, at least LEAST_S."""
    limit_s = UNLIMITED_S if job.limit_s is None else job.limit_s
    return max(LEAST_S, limit_s if job.start_s is None else job.start_s + limit_s - now_s)


def _stands(job: LiveJob) -> bool:
    """Whether a job waits and will not start as things are."""
    waits = job.waits
    return job.start_s is None and (job.held or bool(waits.never or waits.reservation))


def _fits(job: LiveJob, pool: Pool) -> bool:
    return job.gpu_type in (None, pool.name) and job.gpus <= pool.gpus


def _order(job: LiveJob) -> tuple[bool, int, float]:
    return job.start_s is None, -job.priority, job.submit_s


def _gates(jobs: Sequence[LiveJob]) -> Gates:
    """What jobs wait for besides room; for jobs that are not replayed nobody waits."""
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
