"""The time limit of a job: what the policy, the partition and accounting make of a prediction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from predictor.estimate.limits import EvidenceRule, Limit, LimitRule, time_limit, too_thin
from predictor.estimate.residual.novelty import Tier

from .cluster import Cluster
from .config import SlurmLimits
from .estimate import JobPredictions
from .message import slurm_time
from .protocol import HookRequest

MINUTE_S = 60.0
# An explicit limit above this many times the quantile below is called long.
LONG_FACTOR = 2.0
LONG_QUANTILE = 0.99


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a limit is kept within, in minutes; no cap where nothing bounds it."""

    floor_min: int
    cap_min: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitChoice:
    """What becomes of the limit.

    ``limit_min`` is to be written, None to leave what is there. ``found`` is the arithmetic behind,
    None where nothing was predicted. ``reason`` is a word for the log, ``clause`` for the user.
    ``enough_min`` would do where the user's own limit is far too long.
    """

    reason: str
    clause: str = ""
    found: Limit | None = None
    limit_min: int | None = None
    enough_min: int | None = None


def bounds(
    policy: SlurmLimits, request: HookRequest, partitions: Sequence[str], cluster: Cluster | None
) -> Bounds:
    """The floor and the cap for a job that may start in any of ``partitions``.

    With EnforcePartLimits=ALL, or unknown, the tightest partition bounds the limit, else the
    widest: Slurm starts the job where it fits.
    """
    caps = [_cap(name, policy, request, cluster) for name in partitions]
    floors = [policy.partitions[n].floor_min for n in partitions if n in policy.partitions]
    floor = max([policy.floor_min, *(f for f in floors if f is not None)])
    if not caps:
        return Bounds(floor, _account_cap(request, "", cluster))
    strict = cluster is None or cluster.settings.enforce_part_limits == "ALL"
    cap = min(caps) if strict else max(caps)
    return Bounds(floor, None if math.isinf(cap) else int(cap))


def _cap(name: str, policy: SlurmLimits, request: HookRequest, cluster: Cluster | None) -> float:
    known = {part.name: part.max_min for part in request.partitions}
    if name not in known and cluster is not None:
        known |= {part.name: part.max_min for part in cluster.partitions if part.name == name}
    own = policy.partitions.get(name)
    caps = (known.get(name), own.cap_min if own else None, _account_cap(request, name, cluster))
    return min((cap for cap in caps if cap is not None), default=math.inf)


def _account_cap(request: HookRequest, partition: str, cluster: Cluster | None) -> int | None:
    """MaxWall in Slurm's order: QOS of the partition, QOS of the job, association."""
    if cluster is None:
        return None
    qos = {part.name: part.qos for part in cluster.partitions}.get(partition)
    for name in (qos, request.qos):
        if name and name in cluster.walls.qos:
            return cluster.walls.qos[name]
    own = [
        a.max_wall_min
        for a in cluster.walls.associations
        if a.account == request.account
        and a.user in ("", request.user)
        and a.partition in ("", partition)
        and a.max_wall_min is not None
    ]
    return min(own, default=None)


def choose(
    policy: SlurmLimits, request: HookRequest, estimate: JobPredictions, within: Bounds
) -> LimitChoice:
    """The limit for what was predicted, or why the one that is there stays."""
    predictions = estimate.predictions
    if not predictions:
        return LimitChoice(reason=estimate.reason)
    if any(p.steps is None for p in predictions):
        return LimitChoice(
            reason="no-length", clause="`#PT epochs=` or `steps=` would tell the run time"
        )
    found = time_limit(predictions, _rule(policy, within))
    if request.time_limit is not None:
        return _explicit(policy, request.time_limit, found)
    if policy.mode == "off":
        return LimitChoice(reason="limits-off", found=found)
    if estimate.contradiction:
        clause = f"the script states another {estimate.contradiction}: the default stays"
        return LimitChoice(reason="contradiction", clause=clause, found=found)
    thin = too_thin(predictions, _evidence(policy))
    if thin is not None:
        return LimitChoice(reason="thin-evidence", clause=f"{thin}: the default stays", found=found)
    limit_min = max(minutes(found.limit_s), int(request.time_min or 1))
    text = slurm_time(limit_min)
    if policy.mode == "warn":
        return LimitChoice(reason="warn-only", clause=f"time limit {text} would do", found=found)
    clause = f"time limit set to {text}"
    if found.capped:
        clause += ", the longest there is here"
        if found.median_s > found.limit_s:
            clause += ": the job is predicted to hit it"
    return LimitChoice(reason="set", clause=clause, found=found, limit_min=limit_min)


def _explicit(policy: SlurmLimits, limit_min: float, found: Limit) -> LimitChoice:
    clause = ""
    if policy.warn_explicit and limit_min * MINUTE_S < found.median_s:
        clause = f"your limit of {slurm_time(int(limit_min))} is below the median"
    long_s = LONG_FACTOR * (found.slowest.total_quantile_s(LONG_QUANTILE) or math.inf)
    is_long = policy.warn_explicit and limit_min * MINUTE_S > max(long_s, found.limit_s)
    enough_min = minutes(found.limit_s) if is_long else None
    return LimitChoice(reason="explicit", clause=clause, found=found, enough_min=enough_min)


def _rule(policy: SlurmLimits, within: Bounds) -> LimitRule:
    return LimitRule(
        quantile=policy.quantile,
        startup_s=policy.startup_s,
        checkpoint_share=policy.pause_share,
        rounding_s=policy.rounding_min * MINUTE_S,
        floor_s=within.floor_min * MINUTE_S,
        cap_s=None if within.cap_min is None else within.cap_min * MINUTE_S,
    )


def _evidence(policy: SlurmLimits) -> EvidenceRule:
    return EvidenceRule(
        quantile=policy.quantile,
        max_interval_ratio=policy.evidence.max_interval_ratio,
        refused_tiers=frozenset(map(Tier, policy.evidence.refused_tiers)),
    )


def minutes(seconds: float) -> int:
    """Whole minutes that cover so many seconds."""
    return max(1, math.ceil(seconds / MINUTE_S - 1e-9))
