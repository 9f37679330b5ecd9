"""Where a job stands in the queue by its estimate, in the points that this scheduler heeds.

A job stands back ``weight`` times what it is expected to run, and never more than
``longest_delay``, as `precision-time backtest` plays it. One point is what a job gains by waiting a
second; where nothing is gained by waiting, the time of submission is counted in.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from predictor.site.similar.request import ALIKE_S

from .cluster import Settings
from .config import Order

# From here submissions are counted where waiting gains nothing: 63 years fit below the bound.
SINCE_S = 1_767_225_600  # 2026-01-01
# As the hook has them: priorities below 1 are all alike to Slurm, so all jobs get BASE.
BASE = MOST = 2_000_000_000
LEVEL = 0.5  # the quantile that the queue is ordered by, as `precision-time backtest` plays it
MIN_POINTS = 50  # of the longest delay; fewer leave most jobs alike


@dataclass(frozen=True, slots=True)
class OrderField:
    """What to write: ``name`` is site_factor or nice, ``since`` as in HookAnswer."""

    name: str
    points_per_s: float
    since: int | None


def order_field(settings: Settings) -> OrderField | None:
    """Of a cluster, None where its scheduler starts jobs in order of submission whatever we do."""
    if settings.priority == "multifactor":
        if settings.age_points_per_s > 0:
            return OrderField("site_factor", settings.age_points_per_s, None)
        return OrderField("site_factor", 1.0, SINCE_S)
    if settings.priority == "basic" and settings.scheduler != "builtin":
        return OrderField("nice", 1.0, SINCE_S)
    return None


def delay_s(policy: Order, estimate_s: float) -> float:
    """Seconds that a job stands back."""
    return min(policy.weight * max(0.0, estimate_s), policy.longest_delay_s)


def new_priority(policy: Order, field: OrderField | None, back_s: float) -> float | None:
    """Of a job submitted now that stands back so long, by our order alone; None under nice.

    0 where nothing is written. What fair share, QOS and partition add is not known.
    """
    if field is None or policy.mode != "apply":
        return 0.0
    waited_s = 0.0 if field.since is None else time.time() - field.since
    return BASE - field.points_per_s * back_s - waited_s if field.name == "site_factor" else None


def others_points(policy: Order, field: OrderField) -> int:
    """Points that jobs without an estimate stand back."""
    return round(field.points_per_s * delay_s(policy, ALIKE_S))


def told_order(policy: Order, found: OrderField | None, back_s: float | None) -> dict[str, Any]:
    """The fields of HookAnswer for a job that stands back so long, None where nobody knows."""
    if found is None or policy.mode != "apply":
        return {}
    others = others_points(policy, found)
    delay = None if back_s is None else round(found.points_per_s * back_s)
    return {"order": found.name, "delay": delay, "other_delay": others, "since": found.since}


def warnings(policy: Order, settings: Settings) -> tuple[str, ...]:
    """What an admin should know before turning it on."""
    found, told = order_field(settings), []
    if found is None:
        return (
            f"order: nothing is written: {settings.scheduler or 'this scheduler'} with priority/"
            f"{settings.priority or 'unknown'} starts jobs in order of submission; use "
            "priority/multifactor",
        )
    if found.name == "nice":
        told.append(
            "order: under priority/basic users can undo it (scontrol update Nice=0), and jobs "
            "submitted after a restart of slurmctld start behind those before it; use "
            "priority/multifactor"
        )
    elif found.since is None and policy.longest_delay_s > settings.age_max_s:
        told.append(
            f"order: longest_delay={policy.longest_delay} is longer than PriorityMaxAge, after "
            "which waiting gains nothing: raise PriorityMaxAge"
        )
    if found.points_per_s * policy.longest_delay_s < MIN_POINTS:
        told.append(
            f"order: PriorityWeightAge makes longest_delay={policy.longest_delay} worth "
            f"{found.points_per_s * policy.longest_delay_s:.0f} points: raise it"
        )
    return tuple(told)
