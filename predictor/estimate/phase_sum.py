"""The prediction of a job in phases: the sum of those of its phases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ..job.training_job import TrainingJob
from ..physics.step import StepTime
from .assumptions import Assumption
from .prediction import Prediction
from .residual.novelty import Tier

_TIERS = tuple(Tier)


def summed(job: TrainingJob, found: Sequence[Prediction]) -> Prediction:
    """The phases of ``job`` one after the other, as one prediction with the mean step.

    Each quantile is the sum of that quantile of the phases. That is exact where their errors in
    ln units are one error, and the widest a sum can be: phases are of one model, program and
    site, and what the tables or the site's input miss in one they miss in the others. Errors that
    cancel out would be an assumption that no measurement supports.

    The evidence is that of the phase with the least.
    """
    weights = _weights(job, found)
    step_s = _mean(weights, [one.step_s for one in found])
    physical = _mean_step(weights, [one.physical for one in found])
    least = max(found, key=lambda one: _TIERS.index(one.tier))
    times = [w * one.step_s for w, one in zip(weights, found, strict=True)]

    return replace(
        least,
        job=job,
        step_s=step_s,
        throughput=_mean(weights, [one.job.step_samples for one in found]) / step_s,
        steps=None if any(p.steps is None for p in found) else sum(p.steps or 0 for p in found),
        physical=physical,
        correction=step_s / physical.step_s,
        deviation=_mean(times, [one.deviation for one in found]),
        warnings=tuple(dict.fromkeys(text for one in found for text in one.warnings)),
        phases=tuple(found),
        factors=_SummedFactors(tuple(found), tuple(weights), step_s),
        assumptions=_widest(found),
    )


@dataclass(frozen=True, slots=True)
class _SummedFactors:
    """The factor on the mean step for each quantile: the mean of that quantile of the phases."""

    found: tuple[Prediction, ...]
    weights: tuple[float, ...]
    step_s: float

    def __call__(self, level: float) -> float:
        return _mean(self.weights, [one.quantile_s(level) for one in self.found]) / self.step_s


def _widest(found: Sequence[Prediction]) -> tuple[Assumption, ...]:
    """What is assumed of any phase, as far as it could move one."""
    widest: dict[str, Assumption] = {}
    for one in (assumption for phase in found for assumption in phase.assumptions):
        other = widest.setdefault(one.field, one)
        low, high = min(one.low, other.low), max(one.high, other.high)
        widest[one.field] = replace(other, low=low, high=high)
    return tuple(widest.values())


def _weights(job: TrainingJob, found: Sequence[Prediction]) -> list[float]:
    """The steps of each phase, or its share where the job has no length."""
    if all(one.steps is not None for one in found):
        return [float(one.steps or 0) for one in found]
    return [phase.share or 0.0 for phase in job.phases]


def _mean(weights: Sequence[float], values: Sequence[float]) -> float:
    return math.fsum(w * v for w, v in zip(weights, values, strict=True)) / math.fsum(weights)


def _mean_step(weights: Sequence[float], steps: Sequence[StepTime]) -> StepTime:
    """Part by part; the parameters are the same in all phases."""
    names = [f.name for f in fields(StepTime) if f.name != "parameters"]
    means: dict[str, Any] = {
        name: _mean(weights, [getattr(step, name) for step in steps]) for name in names
    }
    return replace(steps[0], **means)
