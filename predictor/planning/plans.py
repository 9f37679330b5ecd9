"""Which GPUs, how many and at what precision: the plan for a job within a budget or a deadline."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..errors import JobError
from ..estimate.core import Predictor
from ..estimate.fits import MARGIN, fits
from ..estimate.prediction import Prediction, summed
from ..job.training_job import TrainingJob
from ..physics.memory import as_it_fits
from ..units import duration, gibibytes, short
from .cost import Cost, Terms, cost_of


def input_bound_s(job: TrainingJob, loader_rate: float) -> float:
    """Least seconds of a step when each node reads ``loader_rate`` samples per second.

    All GPUs of a replica take the same samples, so no more nodes read than there are replicas.
    Raises JobError for a rate that is not positive.
    """
    if not (math.isfinite(loader_rate) and loader_rate > 0):
        raise JobError("loader_rate", loader_rate, "expected samples per second above 0")
    return job.step_samples / (loader_rate * min(job.nodes, job.data_parallel))


def input_bound(found: Prediction, loader_rate: float) -> Prediction:
    """The prediction with no step below what the loader allows, and a warning where that binds.

    Every quantile is floored too: the bound is certain, whatever the rest of the step does.
    """
    if found.phases:
        return summed(found.job, [input_bound(one, loader_rate) for one in found.phases])
    bound_s = input_bound_s(found.job, loader_rate)
    step_s = max(found.step_s, bound_s)
    warnings = found.warnings
    if bound_s > found.step_s:
        wanted = loader_rate * bound_s / found.step_s
        text = (
            f"input-bound: each node would read {short(wanted)} samples/s, the loader gives "
            f"{short(loader_rate)}: a step takes at least {duration(bound_s)}, "
            f"not {duration(found.step_s)}"
        )
        warnings = (*warnings, text)
    return replace(
        found,
        step_s=step_s,
        throughput=found.job.step_samples / step_s,
        warnings=warnings,
        factors=partial(_floored, found, bound_s, step_s),
    )


def _floored(found: Prediction, bound_s: float, step_s: float, level: float) -> float:
    return max(found.quantile_s(level), bound_s) / step_s


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to run the job, and what it costs."""

    found: Prediction
    cost: Cost

    @property
    def seconds(self) -> float:
        """Seconds from start to end."""
        return self.cost.seconds

    @property
    def price(self) -> float:
        """Money, or GPU-hours where the GPU has no price."""
        return self.cost.gpu_hours if self.cost.amount is None else self.cost.amount

    def __str__(self) -> str:
        job = self.found.job
        return f"{job.gpus} x {job.gpu}, {job.precision.value}"

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return self.found.as_dict() | {"cost": self.cost.as_dict()}


@dataclass(frozen=True, slots=True)
class Plans:
    """Every plan that is possible, fastest first, and why others are not."""

    plans: tuple[Plan, ...]
    skipped: tuple[str, ...]

    def fastest(self, budget: float | None = None, within_s: float | None = None) -> Plan | None:
        """The plan that ends first within both, the cheaper of two that end at once."""
        within = self._within(budget, within_s)
        return min(within, key=lambda p: (p.seconds, p.price), default=None)

    def cheapest(self, budget: float | None = None, within_s: float | None = None) -> Plan | None:
        """The plan that costs least within both, the faster of two that cost the same."""
        within = self._within(budget, within_s)
        return min(within, key=lambda p: (p.price, p.seconds), default=None)

    def efficient(self) -> tuple[Plan, ...]:
        """Plans that none beats in time without costing more, fastest first."""
        kept: list[Plan] = []
        for plan in sorted(self.plans, key=lambda p: (p.seconds, p.price)):
            if not kept or plan.price < kept[-1].price:
                kept.append(plan)
        return tuple(kept)

    def _within(self, budget: float | None, within_s: float | None) -> list[Plan]:
        most, longest_s = (math.inf if bound is None else bound for bound in (budget, within_s))
        return [p for p in self.plans if p.price <= most and p.seconds <= longest_s]


def make_plans(
    model: Predictor, jobs: Iterable[TrainingJob], terms: Terms, *, loader_rate: float | None = None
) -> Plans:
    """What each job costs that fits its GPU and, where there are prices at all, has one.

    A global batch that does not fit is split into more micro-steps. Raises JobError for jobs
    without a length, GraphError where the model has no graph.
    """
    possible: list[TrainingJob] = []
    skipped: list[str] = []
    for job in jobs:
        if terms.tariff.per_gpu_hour and job.gpu not in terms.tariff.per_gpu_hour:
            skipped.append(f"{job.gpu}: no price")
        elif (fitting := fitting_job(job)) is None:
            skipped.append(_too_large(job))
        else:
            possible.append(fitting)
    found = model.predict_many(possible)
    if loader_rate is not None:
        found = [input_bound(one, loader_rate) for one in found]
    plans = [Plan(one, cost_of(one, terms)) for one in found]
    return Plans(
        tuple(sorted(plans, key=lambda p: (p.seconds, p.price))), tuple(dict.fromkeys(skipped))
    )


def fitting_job(job: TrainingJob) -> TrainingJob | None:
    """The job, or the same global batch in the fewest micro-steps that fit; None where none do.

    Micro-steps that would be assumed are stated: whoever follows a plan has to ask for them.
    """
    job = job.but(grad_accum=as_it_fits(job, 1 - MARGIN).grad_accum)
    if fits(job).ok:
        return job
    if job.global_batch_size is None:
        return None
    return next((one for one in job.accumulating_more() if fits(one).ok), None)


def _too_large(job: TrainingJob) -> str:
    smallest = job
    if job.global_batch_size is not None:
        smallest = job.but(grad_accum=job.global_batch_size // job.data_parallel)
    fit, batch = fits(smallest), smallest.micro_batch_size
    needs = f"batch {batch} needs {gibibytes(fit.need_bytes)} of {gibibytes(fit.have_bytes)}"
    return f"{job.gpus} x {job.gpu}, {job.precision.value}: {needs}"
