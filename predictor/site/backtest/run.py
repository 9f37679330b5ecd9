"""Replays a workload under every policy, several at a time, and what figures each comes to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from ..replay import (
    BACKFILL_DEPTH,
    NO_GATES,
    STOCK_RULES,
    After,
    Floats,
    Gates,
    Policy,
    SlurmRules,
    Trace,
    in_pools,
    replay,
)
from ..similar.estimate import PhysicsView
from .policies import USERS, LimitPolicy, Limits, learned_times, limits_of
from .workload import HOUR_S, ReplayJobs

# The time of a second submission is that of the kill, which a first replay tells.
ROUNDS = 2
# A job counts as at least this long in its slowdown (Feitelson et al., JSSPP 1997).
SLOWDOWN_FLOOR_S = 10.0
# A user waits longer by more than this.
LONGER_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """When each job (n,) started and ended for good, and what its killed attempt ran in vain."""

    start_s: Floats
    end_s: Floats
    lost_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One policy, replayed; docs/how-to/backtest.md defines each figure. Times are in seconds.

    ``predicted_share`` is the share of jobs whose limit follows from a prediction. ``kill_rate``
    and ``killed_gpu_hours`` are of jobs killed at their limit: their share, and what they used;
    a killed job that runs again under its user's limit used both. ``unfinished_gpu_hours`` is what
    those that did not end would still have needed. ``unused_gpu_hours`` were reserved and not used:
    limit less run time, times GPUs.

    A job waits until its last start: what an attempt ran that was killed and submitted again is
    waiting. ``extra_kills`` are jobs killed that their users' limits would have let run on;
    ``users_waiting_longer_share`` is of users whose jobs wait longer in the mean than under users'
    limits, by more than a minute; None where that policy is not replayed or no user is known.
    ``bounded_slowdown`` is a mean over jobs, ``utilisation`` the share of the GPUs' time in use
    between the first and the last submission, ``makespan_s`` from the first submission to the last
    end.
    """

    policy: str
    jobs: int
    predicted_share: float
    kill_rate: float
    killed_gpu_hours: float
    killed_share_of_used: float
    unfinished_gpu_hours: float
    used_gpu_hours: float
    reserved_gpu_hours: float
    unused_gpu_hours: float
    unused_share_of_reserved: float
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


@dataclass(frozen=True, slots=True)
class Replayed:
    """One policy: its limits, the schedule they led to, and its figures."""

    policy: LimitPolicy
    limits: Limits
    schedule: Attempts
    figures: Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """Every policy on one workload, by one scheduler; ``slurm`` holds where it is slurmctld."""

    work: ReplayJobs
    replayed: tuple[Replayed, ...]
    queue: Policy = Policy.EASY
    depth: int = BACKFILL_DEPTH
    slurm: SlurmRules = STOCK_RULES

    @property
    def scheduler(self) -> dict[str, Any]:
        """Who started the jobs, and by which settings; None for those without end."""
        rules = asdict(self.slurm) if self.queue is Policy.SLURM else {}
        if not self.slurm.fair_share_s:
            rules.pop("half_life_s", None)
        depth = {} if self.queue is Policy.FIFO else {"depth": self.depth}
        ends = {name: None if value == inf else value for name, value in rules.items()}
        return {"name": self.queue.value} | depth | ends

    @property
    def order(self) -> dict[str, float]:
        """How far estimates put jobs back in the queue; empty where no policy orders it."""
        if all(each.limits.key_s is None for each in self.replayed):
            return {}
        bounds = self.work.bounds
        return {"weight": bounds.order_weight, "longest_delay_s": bounds.order_bound_s}

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "jobs": len(self.work),
            "scheduler": self.scheduler,
            "order": self.order,
            "pools": [asdict(pool) for pool in self.work.pools],
            "skipped": dict(self.work.skipped),
            "killed_in_the_past": int(self.work.censored.sum()),
            "warnings": list(self.warnings),
            "policies": [asdict(each.figures) for each in self.replayed],
        }

    @property
    def warnings(self) -> tuple[str, ...]:
        """Policies under which jobs wait less because others are killed."""
        users = next((each.figures for each in self.replayed if each.policy.kind == USERS), None)
        return tuple(
            f"{each.policy.name} wins by killing: {each.figures.extra_kills} jobs end at its limits"
            " that their users' would let run; they run again"
            for each in self.replayed
            if users and each.figures.extra_kills and each.figures.wait_mean_s < users.wait_mean_s
        )


def backtest(
    work: ReplayJobs,
    policies: Sequence[LimitPolicy],
    *,
    queue: Policy = Policy.EASY,
    depth: int = BACKFILL_DEPTH,
    slurm: SlurmRules = STOCK_RULES,
    physics: PhysicsView | None = None,
    jobs: int = -1,
    tell: Callable[[str, float], None] = lambda stage, share: None,
) -> Backtest:
    """Replay the jobs under each policy's limits, in ``jobs`` processes (-1 for one a core).

    ``physics`` tells of jobs that name their network, ``tell`` is called with stage and share done.
    Raises TraceError where a policy learns and nobody says who asked for what.
    """
    tell("estimates", 0.0)
    levels = [policy.quantile for policy in policies if policy.quantile is not None]
    learned = learned_times(work, levels, physics) if levels else None
    limits = [limits_of(work, policy, learned) for policy in policies]
    replays = Parallel(n_jobs=jobs, return_as="generator")(
        delayed(replay_limits)(work, given, queue=queue, depth=depth, slurm=slurm)
        for given in limits
    )
    schedules: list[Attempts] = []
    for number, policy in enumerate(policies, start=1):
        tell(f"replay under {policy.name}", number / (len(policies) + 1))
        schedules.append(next(replays))
    users = next((out for p, out in zip(policies, schedules, strict=True) if p.kind == USERS), None)
    replayed = tuple(
        Replayed(policy, given, out, figures_of(work, policy, given, out, users))
        for policy, given, out in zip(policies, limits, schedules, strict=True)
    )
    return Backtest(work=work, replayed=replayed, queue=queue, depth=depth, slurm=slurm)


def replay_limits(
    work: ReplayJobs, given: Limits, *, queue: Policy, depth: int, slurm: SlurmRules = STOCK_RULES
) -> Attempts:
    """Every job under its limit; one that it kills comes again under the user's, from nothing.

    It comes at the end of the line at the time of its kill.
    """
    n = len(work)
    again = np.flatnonzero((work.run_s > given.limit_s) & (given.again_s > given.limit_s))
    again_submit_s = work.submit_s[again] + given.limit_s[again]
    both = np.concatenate([np.arange(n), again])
    users = np.unique([run.request.user for run in work.past], return_inverse=True)[1]
    gates = NO_GATES
    if len(again):
        gates = Gates(after=tuple(After(job=n + k, other=int(j)) for k, j in enumerate(again)))
    for _ in range(ROUNDS if len(again) else 1):
        trace = Trace(
            submit_s=np.concatenate([work.submit_s, again_submit_s]),
            gpus=work.gpus[both],
            limit_s=np.concatenate([given.limit_s, given.again_s[again]]),
            run_s=in_pools(work.run_s[both], work.pool[both], len(work.pools)),
            # Seconds, as order is written to slurmctld: of alike ones the first submitted.
            priority=None if given.key_s is None else -np.round(given.key_s).astype(np.int64),
            user=users[both] if len(users) == n else None,
        )
        out = replay(trace, work.pools, policy=queue, depth=depth, gates=gates, slurm=slurm)
        again_submit_s = out.end_s[again]
    start_s, end_s, lost_s = out.start_s[:n].copy(), out.end_s[:n].copy(), np.zeros(n)
    lost_s[again] = end_s[again] - start_s[again]
    start_s[again], end_s[again] = out.start_s[n:], out.end_s[n:]
    return Attempts(start_s=start_s, end_s=end_s, lost_s=lost_s)


def is_killed(work: ReplayJobs, limits: Limits) -> NDArray[np.bool_]:
    """Jobs (n,) that outlive their limit; of a censored one, a limit up to what it ran kills."""
    killed: NDArray[np.bool_] = (work.run_s > limits.limit_s) | (
        work.censored & (limits.limit_s <= work.run_s)
    )
    return killed


def limit_figures(work: ReplayJobs, limits: Limits) -> dict[str, Any]:
    """The figures that follow from limits alone, by their names in Figures."""
    killed = is_killed(work, limits)
    last_s = np.where(killed & ~np.isnan(limits.again_s), limits.again_s, limits.limit_s)
    in_vain = work.gpus * np.where(last_s > limits.limit_s, limits.limit_s, 0.0) / HOUR_S
    done = work.gpus * np.minimum(work.run_s, last_s) / HOUR_S
    used, reserved = done + in_vain, work.gpus * last_s / HOUR_S + in_vain
    lost = float(in_vain.sum() + done[killed & (last_s == limits.limit_s)].sum())
    unused = float((reserved - used).sum())
    return {
        "predicted_share": float(limits.predicted.mean()),
        "kill_rate": float(killed.mean()),
        "killed_gpu_hours": lost,
        "killed_share_of_used": _share(lost, float(used.sum())),
        "unfinished_gpu_hours": float((work.gpus * work.run_s / HOUR_S - done).sum()),
        "used_gpu_hours": float(used.sum()),
        "reserved_gpu_hours": float(reserved.sum()),
        "unused_gpu_hours": unused,
        "unused_share_of_reserved": _share(unused, float(reserved.sum())),
    }


def figures_of(
    work: ReplayJobs,
    policy: LimitPolicy,
    limits: Limits,
    out: Attempts,
    users: Attempts | None = None,
) -> Figures:
    """All figures of one replay; ``users`` is the replay of the users' own limits."""
    wait_s = out.start_s - work.submit_s
    run_s = out.end_s - out.start_s
    slowdown = np.maximum(1.0, (wait_s + run_s) / np.maximum(run_s, SLOWDOWN_FLOOR_S))
    names, longer = [run.request.user for run in work.past], None
    if users is not None and any(names):
        _, rows = np.unique(names, return_inverse=True)
        more_s = np.bincount(rows, wait_s - (users.start_s - work.submit_s)) / np.bincount(rows)
        longer = float((more_s > LONGER_S).mean())
    first, last = float(work.submit_s.min()), float(work.submit_s.max())
    inside_s = np.clip(out.end_s, first, last) - np.clip(out.start_s, first, last) + out.lost_s
    there_s = sum(pool.gpus for pool in work.pools) * (last - first)
    return Figures(
        policy=policy.name,
        jobs=len(work),
        **limit_figures(work, limits),
        wait_mean_s=float(wait_s.mean()),
        wait_median_s=float(np.median(wait_s)),
        wait_p95_s=float(np.quantile(wait_s, 0.95)),
        wait_max_s=float(wait_s.max()),
        extra_kills=int((out.lost_s > 0).sum()),
        users_waiting_longer_share=longer,
        bounded_slowdown=float(slowdown.mean()),
        bounded_slowdown_median=float(np.median(slowdown)),
        utilisation=_share(float((work.gpus * inside_s).sum()), there_s),
        makespan_s=float(out.end_s.max() - work.submit_s.min()),
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
