"""Replays a workload under every policy, several at a time, and writes the figures as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from ...errors import TraceError
from ..replay import BACKFILL_DEPTH, STOCK_RULES, Policy, SlurmRules
from .figures import Figures, figures_of, queue_length
from .policies import (
    LEARNING,
    PREDICTING,
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
    jobs: int = -1,
) -> Backtest:
    """Replay the jobs under each policy's limits, in ``jobs`` processes (-1 for one a core).

    Raises TraceError where a policy predicts and no job has a prediction.
    """
    predicts = any(found is not None for found in work.predictions)
    asking = [policy.name for policy in policies if policy.kind in PREDICTING]
    if asking and not predicts:
        raise TraceError(
            f"invalid policy={asking[0]!r}: no job says what it is, so none is predicted"
        )
    learned = _learned(work, policies)
    limits = [limits_of(work, policy, learned) for policy in policies]
    schedules = Parallel(n_jobs=jobs)(
        delayed(replay_limits)(work, given, queue=queue, depth=depth, slurm=slurm)
        for given in limits
    )
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


def _learned(work: Workload, policies: Sequence[LimitPolicy]) -> LearnedTimes | None:
    levels = [policy.quantile for policy in policies if policy.kind in LEARNING]
    return learned_times(work, [level for level in levels if level]) if levels else None


FIGURES, WAITS, QUEUE = "figures.csv", "waits.csv", "queue.csv"
QUEUE_POINTS = 400
SHARES = np.linspace(0, 1, 201)


def write_tables(found: Backtest, folder: Path) -> list[Path]:
    """Write them all into a folder that exists; returns the files."""
    names = [each.policy.name for each in found.replayed]
    figures = [each.figures.as_dict() for each in found.replayed]
    waits, queue = _columns(names, "wait_s"), _columns(names, "waiting_jobs")
    return [
        _write(folder / FIGURES, list(figures[0]), ([*row.values()] for row in figures)),
        _write(folder / WAITS, ["share_of_jobs", *waits], wait_quantiles(found).tolist()),
        _write(folder / QUEUE, ["time_s", *queue], queue_lengths(found).tolist()),
    ]


def wait_quantiles(found: Backtest) -> NDArray[np.float64]:
    """A share of the jobs, and the seconds that so many wait at most, by policy."""
    waits = [each.schedule.start_s - found.work.submit_s for each in found.replayed]
    return np.column_stack([SHARES, *(np.quantile(wait, SHARES) for wait in waits)])


def queue_lengths(found: Backtest) -> NDArray[np.float64]:
    """Seconds since the first submission, and the jobs that wait then, by policy."""
    first = float(found.work.submit_s.min())
    last = max(float(each.schedule.start_s.max()) for each in found.replayed)
    at_s = np.linspace(first, last, QUEUE_POINTS)
    waiting = [queue_length(found.work, each.schedule, at_s) for each in found.replayed]
    return np.column_stack([at_s - first, *waiting])


def _columns(names: Sequence[str], unit: str) -> list[str]:
    return [f"{name} {unit}" for name in names]


def _write(path: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)
    return path
