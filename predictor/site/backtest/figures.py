"""The figures of one policy, from its limits and the schedule they led to."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..replay import Floats
from .policies import LimitPolicy, Limits
from .resubmit import Attempts
from .workload import HOUR_S, Workload

# A job counts as at least this long in its slowdown (Feitelson et al., JSSPP 1997).
SLOWDOWN_FLOOR_S = 10.0
# A user waits longer by more than this.
LONGER_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFigures:
    """What follows from limits alone; docs/how-to/backtest.md defines each.

    ``predicted_share`` is the share of jobs whose limit follows from a prediction. ``kill_rate``
    and ``killed_gpu_hours`` are of jobs killed at their limit: their share, and what they used;
    a killed job that runs again under its user's limit used both. ``unfinished_gpu_hours`` is what
    those that did not end would still have needed. ``unused_gpu_hours`` were
    reserved and not used: limit less run time, times GPUs.
    """

    predicted_share: float
    kill_rate: float
    killed_gpu_hours: float
    killed_share_of_used: float
    unfinished_gpu_hours: float
    used_gpu_hours: float
    reserved_gpu_hours: float
    unused_gpu_hours: float
    unused_share_of_reserved: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One policy, replayed; times in seconds, ``bounded_slowdown`` as a mean over jobs.

    A job waits until its last start: what an attempt ran that was killed and submitted again is
    waiting. ``extra_kills`` are jobs killed that their users' limits would have let run on;
    ``users_waiting_longer_share`` is of users whose jobs wait longer in the mean than under users'
    limits, by more than a minute; None where that policy is not replayed or no user is known.
    ``utilisation`` is the share of the GPUs' time in use between the first and the last submission,
    ``makespan_s`` from the first submission to the last end.
    """

    policy: str
    jobs: int
    limits: LimitFigures
    wait_mean_s: float
    wait_median_s: float
    wait_p95_s: float
    wait_max_s: float
    extra_kills: int
    users_waiting_longer_share: float | None
    bounded_slowdown: float
    bounded_slowdown_median: float
    utilisation: float
    makespan_s: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values, those of the limits beside the others."""
        values = asdict(self)
        limits: dict[str, Any] = values.pop("limits")
        return {"policy": values.pop("policy"), "jobs": values.pop("jobs")} | limits | values


def limit_figures(work: Workload, limits: Limits) -> LimitFigures:
    """What limits alone do to the jobs of a workload."""
    killed = is_killed(work, limits)
    last_s = np.where(killed & ~np.isnan(limits.again_s), limits.again_s, limits.limit_s)
    in_vain = work.gpus * np.where(last_s > limits.limit_s, limits.limit_s, 0.0) / HOUR_S
    done = work.gpus * np.minimum(work.run_s, last_s) / HOUR_S
    used, reserved = done + in_vain, work.gpus * last_s / HOUR_S + in_vain
    gone = killed & (last_s == limits.limit_s)
    lost = float(in_vain.sum() + done[gone].sum())
    return LimitFigures(
        predicted_share=float(limits.predicted.mean()),
        kill_rate=float(killed.mean()),
        killed_gpu_hours=lost,
        killed_share_of_used=_share(lost, float(used.sum())),
        unfinished_gpu_hours=float((work.gpus * work.run_s / HOUR_S - done).sum()),
        used_gpu_hours=float(used.sum()),
        reserved_gpu_hours=float(reserved.sum()),
        unused_gpu_hours=float((reserved - used).sum()),
        unused_share_of_reserved=_share(float((reserved - used).sum()), float(reserved.sum())),
    )


def is_killed(work: Workload, limits: Limits) -> NDArray[np.bool_]:
    """Jobs (n,) that outlive their limit; of a censored one, a limit up to what it ran kills."""
    killed: NDArray[np.bool_] = (work.run_s > limits.limit_s) | (
        work.censored & (limits.limit_s <= work.run_s)
    )
    return killed


def figures_of(
    work: Workload,
    policy: LimitPolicy,
    limits: Limits,
    out: Attempts,
    users: Attempts | None = None,
) -> Figures:
    """All figures of one replay; ``users`` is the replay of the users' own limits."""
    wait_s = out.start_s - work.submit_s
    run_s = out.end_s - out.start_s
    slowdown = np.maximum(1.0, (wait_s + run_s) / np.maximum(run_s, SLOWDOWN_FLOOR_S))
    return Figures(
        policy=policy.name,
        jobs=len(work),
        limits=limit_figures(work, limits),
        wait_mean_s=float(wait_s.mean()),
        wait_median_s=float(np.median(wait_s)),
        wait_p95_s=float(np.quantile(wait_s, 0.95)),
        wait_max_s=float(wait_s.max()),
        extra_kills=int((out.lost_s > 0).sum()),
        users_waiting_longer_share=_waiting_longer(work, wait_s, users),
        bounded_slowdown=float(slowdown.mean()),
        bounded_slowdown_median=float(np.median(slowdown)),
        utilisation=_utilisation(work, out),
        makespan_s=float(out.end_s.max() - work.submit_s.min()),
    )


def _waiting_longer(work: Workload, wait_s: Floats, users: Attempts | None) -> float | None:
    names = [run.request.user for run in work.past]
    if users is None or not any(names):
        return None
    _, rows = np.unique(names, return_inverse=True)
    more_s = np.bincount(rows, wait_s - (users.start_s - work.submit_s)) / np.bincount(rows)
    return float((more_s > LONGER_S).mean())


def _utilisation(work: Workload, out: Attempts) -> float:
    first, last = float(work.submit_s.min()), float(work.submit_s.max())
    inside = np.clip(out.end_s, first, last) - np.clip(out.start_s, first, last)
    return _share(
        float((work.gpus * (inside + out.lost_s)).sum()),
        sum(p.gpus for p in work.pools) * (last - first),
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
