"""How long a job runs on the slowest GPU type it may land on, and what deadline that asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from predictor.estimate.core import Predictor
from predictor.estimate.limits import Limit, LimitRule, time_limit, too_thin
from predictor.estimate.prediction import Prediction
from predictor.units import duration

from ..config import Config, Deadline
from ..estimate import TypeEstimate, estimates, lacking
from ..plain import go_duration
from ..rank import evidence, refusal
from ..records import PodJob
from ..selectors import GpuCandidates
from ..workload import LONGEST_S

NO_NODE = "no known node has a GPU that its pods may land on"


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationForecast:
    """What is known of a job before it is scheduled.

    ``slowest`` is the estimate on the slowest type that it may land on, None where nothing is
    predicted and ``reason`` says why. ``limit`` is None without a length; its times are of one run,
    its ``limit_s`` covers ``runs`` of them in a row. ``blocked`` says why no node can take the job,
    ``doubt`` why the limit must not become a deadline; else they are empty.
    """

    slowest: TypeEstimate | None = None
    limit: Limit | None = None
    reason: str = ""
    blocked: str = ""
    doubt: str = ""
    runs: int = 1

    @property
    def deadline_s(self) -> int | None:
        """Seconds that a deadline may be set to, None where it must not be set."""
        if self.limit is None or self.blocked or self.doubt:
            return None
        return round(self.limit.limit_s)


def forecast(
    predictor: Predictor, config: Config, job: PodJob, where: GpuCandidates, *, runs: int = 1
) -> DurationForecast:
    """The forecast for a job that may land on some GPU types, less those that are refused."""
    if reason := lacking(job):
        return DurationForecast(reason=reason)
    found = estimates(predictor, config, job, where.types)
    if not found:
        return DurationForecast(reason=NO_NODE)
    if found[0].assumed:
        return DurationForecast(reason=found[0].unclear)
    refusals = [refusal(job, estimate, config) for estimate in found]
    open_ = [e for e, why in zip(found, refusals, strict=True) if why is None]
    texts = dict.fromkeys(why.text for why in refusals if why is not None)
    blocked = "" if open_ else "; ".join(texts)
    pool = open_ or found
    predicted = [(e, p) for e in pool if (p := e.prediction) is not None]
    if not predicted:
        return DurationForecast(reason=pool[0].reason, blocked=blocked)
    limit = _limit([p for _, p in predicted], config.deadline, runs)
    slowest = max(predicted, key=lambda pair: pair[1].step_s)[0]
    if limit is not None:
        slowest = next(e for e, p in predicted if p is limit.slowest)
    doubt = _doubt(pool, [p for _, p in predicted], config)
    if disputed := job.stated.contradictions:
        doubt = f"the command states another {disputed[0].field}"
    doubt = doubt or _too_short(pool, limit, config, runs)
    if limit is not None and limit.limit_s > LONGEST_S:
        doubt = f"it would be {duration(limit.limit_s)}, more than a year: check steps and epochs"
    if not where.certain:
        doubt = "no node with such a GPU is known"
    return DurationForecast(slowest=slowest, limit=limit, blocked=blocked, doubt=doubt, runs=runs)


def _limit(predictions: Sequence[Prediction], deadline: Deadline, runs: int) -> Limit | None:
    """A limit of so many runs, each with its start-up and checkpoints."""
    if any(prediction.steps is None for prediction in predictions):
        return None
    rule = LimitRule(
        quantile=deadline.quantile,
        startup_s=runs * deadline.startup_s,
        checkpoint_share=runs * (1 + deadline.checkpoint_share) - 1,
        rounding_s=deadline.rounding_s,
        floor_s=deadline.floor_s,
        cap_s=deadline.cap_s,
    )
    return time_limit(predictions, rule)


def _doubt(pool: Sequence[TypeEstimate], predictions: Sequence[Prediction], config: Config) -> str:
    """One GPU type without a time, or with too wide a one, is enough."""
    unknown = next((estimate.reason for estimate in pool if estimate.prediction is None), "")
    return unknown or too_thin(predictions, evidence(config)) or ""


def _too_short(pool: Sequence[TypeEstimate], limit: Limit | None, config: Config, runs: int) -> str:
    """A deadline that we cut must not make the filter refuse the very nodes it was made for."""
    totals = [runs * (e.total_s(config.filter.deadline_quantile) or 0.0) for e in pool]
    if limit is None or max(totals) <= limit.limit_s:
        return ""
    return f"{go_duration(limit.limit_s)} would not be enough"
