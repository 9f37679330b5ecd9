"""Replays a workload under every policy, several at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

from joblib import Parallel, delayed

from ..replay import BACKFILL_DEPTH, STOCK_RULES, Policy, SlurmRules
from ..similar.estimate import PhysicsView
from .figures import Figures, figures_of
from .policies import (
    USERS,
    LearnedTimes,
    LimitPolicy,
    Limits,
    learned_times,
    limits_of,
)
from .resubmit import Attempts, replay_limits
from .workload import Workload


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

    work: Workload
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
    work: Workload,
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
    learned = _learned(work, policies, physics)
    limits = [limits_of(work, policy, learned) for policy in policies]
    replays = Parallel(n_jobs=jobs, return_as="generator")(
        delayed(replay_limits)(work, given, queue=queue, depth=depth, slurm=slurm)
        for given in limits
    )
    schedules = []
    for number, policy in enumerate(policies, start=1):
        tell(f"replay under {policy.name}", number / (len(policies) + 1))
        schedules.append(next(replays))
    users = next(
        (out for policy, out in zip(policies, schedules, strict=True) if policy.kind == USERS), None
    )
    return Backtest(
        work=work,
        replayed=tuple(
            Replayed(policy, given, out, figures_of(work, policy, given, out, users))
            for policy, given, out in zip(policies, limits, schedules, strict=True)
        ),
        queue=queue,
        depth=depth,
        slurm=slurm,
    )


def _learned(
    work: Workload, policies: Sequence[LimitPolicy], physics: PhysicsView | None
) -> LearnedTimes | None:
    levels = [policy.quantile for policy in policies if policy.quantile is not None]
    return learned_times(work, levels, physics) if levels else None
