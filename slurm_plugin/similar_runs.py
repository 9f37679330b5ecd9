"""The time limit of a job that cannot be predicted: what similar runs of its user took."""

from __future__ import annotations

from dataclasses import replace

from predictor.identify.grammar import stated_text
from predictor.identify.stated import Stated
from predictor.site.similar.estimate import carried_limit_s, estimate_job
from predictor.site.similar.memory import SiteMemory
from predictor.site.similar.request import JobRequest, stated_fields
from predictor.site.similar.script import command_signature, script_signature

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
    memory: SiteMemory,
    within: Bounds,
) -> LimitChoice:
    """The choice, with what similar runs took where nothing is predicted, no limit asked for."""
    settled = choice.found is not None or request.time_limit is not None
    if policy.history_mode == "off" or policy.mode == "off" or settled:
        return choice
    job = job_request(request, wanted, stated)
    limit_s = carried_limit_s(job, memory, policy.quantile)
    if limit_s is None:
        return choice
    limit_min = max(_limit_min(limit_s, policy, within), int(request.time_min or 1))
    text = slurm_time(limit_min)
    took = estimate_job(job, memory).evidence[0]
    if policy.history_mode == "advise" or policy.mode == "warn":
        return replace(choice, reason="similar-runs-advice", clause=f"{took}, {text} would do")
    clause = f"{took}: time limit set to {text}"
    return LimitChoice(reason="similar-runs", clause=clause, limit_min=limit_min)


def job_request(request: HookRequest, wanted: GpuRequest, stated: Stated) -> JobRequest:
    """A submitted job as similar runs are found by it."""
    directory = request.work_dir or ""
    limit_min = request.time_limit
    return JobRequest(
        user=request.user,
        account=request.account or "",
        name=request.name or "",
        partition=request.partition or "",
        gpus=wanted.gpus,
        gpu_type=wanted.type or "",
        limit_s=None if limit_min is None or limit_min == float("inf") else limit_min * 60.0,
        script=script_signature(request.script or ""),
        command=command_signature(" ".join(request.argv), directory),
        directory=directory,
        **stated_fields(stated_text(stated)),
    )


def _limit_min(limit_s: float, policy: SlurmLimits, within: Bounds) -> int:
    rounded = -(-minutes(limit_s) // policy.rounding_min) * policy.rounding_min
    limit_min = max(rounded, within.floor_min)
    return limit_min if within.cap_min is None else min(limit_min, within.cap_min)
