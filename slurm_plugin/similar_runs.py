"""The time limit of a job that cannot be predicted: what similar runs of its user took."""

from __future__ import annotations

from dataclasses import replace

from predictor.identify.stated import Stated
from predictor.site.calibration.lengths import LengthEstimate, LengthModel
from predictor.site.calibration.like_jobs import LikeJob
from predictor.units import duration

from .config import SlurmLimits
from .limit import Bounds, LimitChoice, minutes
from .message import slurm_time
from .protocol import HookRequest
from .tres import GpuRequest


def from_similar_runs(
    choice: LimitChoice,
    policy: SlurmLimits,
    request: HookRequest,
    wanted: GpuRequest,
    stated: Stated,
    lengths: LengthModel,
    within: Bounds,
) -> LimitChoice:
    """The choice, or what similar runs took where nothing was predicted and no limit asked for."""
    settled = choice.found is not None or request.time_limit is not None
    if policy.history_mode == "off" or policy.mode == "off" or settled:
        return choice
    like = LikeJob(
        user=request.user,
        gpus=wanted.gpus,
        name=request.name or "",
        command=" ".join(request.argv),
        model=stated.model or "",
    )
    found = lengths.estimate(like, policy.quantile)
    if found is None:
        return choice
    limit_min = max(_limit_min(found, policy, within), int(request.time_min or 1))
    text = slurm_time(limit_min)
    took = f"{found.evidence} took {duration(found.median_s)} (median)"
    if policy.history_mode == "advise" or policy.mode == "warn":
        return replace(choice, reason="like-jobs-advice", clause=f"{took}, {text} would do")
    clause = f"{took}: time limit set to {text}"
    return LimitChoice(reason="like-jobs", clause=clause, limit_min=limit_min)


def _limit_min(found: LengthEstimate, policy: SlurmLimits, within: Bounds) -> int:
    rounded = -(-minutes(found.quantile_s) // policy.rounding_min) * policy.rounding_min
    limit_min = max(rounded, within.floor_min)
    return limit_min if within.cap_min is None else min(limit_min, within.cap_min)
