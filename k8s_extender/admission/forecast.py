"""How long a job runs on the slowest GPU type it may land on, and what deadline that asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from predictor.core import Predictor
from predictor.limits import Limit, LimitRule, time_limit, too_thin
from predictor.prediction import Prediction

from ..config import Config, Deadline
from ..estimate import TypeEstimate, estimates, lacking
from ..records import PodJob
from ..refuse import evidence, refusal
from .candidates import Candidates

NO_NODE = "no known node has a GPU that its pods may land on"
NO_LENGTH = "state epochs or steps for a duration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What is known of a job before it is scheduled.

    ``slowest`` is the estimate on the slowest type that it may land on, None where nothing is
    predicted and ``reason`` says why. ``limit`` is None without a length. ``doubt`` says why the
    limit must not become a deadline, empty where it may.
    """

    slowest: TypeEstimate | None = None
    limit: Limit | None = None
    reason: str = ""
    doubt: str = ""


def forecast(predictor: Predictor, config: Config, job: PodJob, where: Candidates) -> Forecast:
    """The forecast for a job that may land on any of some GPU types."""
    if reason := lacking(job, config):
        return Forecast(reason=reason)
    found = estimates(predictor, config, job, where.types)
    if not found:
        return Forecast(reason=NO_NODE)
    refused = [(estimate, refusal(job, estimate, config)) for estimate in found]
    open_ = [estimate for estimate, why in refused if why is None]
    blocked = "; ".join(dict.fromkeys(why.text for _, why in refused if why is not None))
    pool = open_ or found
    predicted = {id(p): (p, e) for e in pool if (p := slowed(e)) is not None}
    if not predicted:
        return Forecast(reason=blocked or pool[0].reason)
    limit = _limit(predicted, config.deadline)
    if limit is None:
        slowest = max((e for _, e in predicted.values()), key=lambda e: e.step_s or 0.0)
    else:
        slowest = predicted[id(limit.slowest)][1]
    doubt = f"no known node can take it ({blocked})" if not open_ else ""
    if not where.certain:
        doubt = "no deadline: no node with such a GPU is known"
    doubt = doubt or _doubt([p for p, _ in predicted.values()], pool, limit, config)
    return Forecast(slowest=slowest, limit=limit, doubt=doubt)


def slowed(estimate: TypeEstimate) -> Prediction | None:
    """The prediction with the times of the slice or the share that the pod gets."""
    found = estimate.prediction
    if found is None or estimate.slowdown == 1:
        return found
    return replace(
        found,
        step_s=found.step_s * estimate.slowdown,
        throughput=found.throughput / estimate.slowdown,
    )


def _limit(
    predicted: Mapping[int, tuple[Prediction, TypeEstimate]], deadline: Deadline
) -> Limit | None:
    predictions = [prediction for prediction, _ in predicted.values()]
    if any(prediction.steps is None for prediction in predictions):
        return None
    return time_limit(predictions, _rule(deadline))


def _doubt(
    predictions: Sequence[Prediction],
    pool: Sequence[TypeEstimate],
    limit: Limit | None,
    config: Config,
) -> str:
    """Why no deadline may be set: one GPU type without a time is enough."""
    if limit is None:
        return NO_LENGTH
    unknown = next((estimate.reason for estimate in pool if estimate.prediction is None), "")
    thin = unknown or too_thin(predictions, evidence(config))
    return f"no deadline: {thin}" if thin else ""


def _rule(deadline: Deadline) -> LimitRule:
    return LimitRule(
        quantile=deadline.quantile,
        startup_s=deadline.startup_s,
        checkpoint_share=deadline.checkpoint_share,
        rounding_s=deadline.rounding_s,
        floor_s=deadline.floor_s,
        cap_s=deadline.cap_s,
    )
