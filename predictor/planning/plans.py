"""Which GPUs, how many and at what precision: the plan for a job within a budget or a deadline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..estimate.core import Predictor
from ..estimate.fits import fits, largest_batch
from ..estimate.prediction import Prediction
from ..job.training_job import TrainingJob
from ..units import gibibytes
from .cost import Cost, Terms, cost_of
from .input_rate import input_bound


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
        return self._least(lambda p: (p.seconds, p.price), budget, within_s)

    def cheapest(self, budget: float | None = None, within_s: float | None = None) -> Plan | None:
        """The plan that costs least within both, the faster of two that cost the same."""
        return self._least(lambda p: (p.price, p.seconds), budget, within_s)

    def efficient(self) -> tuple[Plan, ...]:
        """Plans that none beats in time without costing more, fastest first."""
        kept: list[Plan] = []
        for plan in sorted(self.plans, key=lambda p: (p.seconds, p.price)):
            if not kept or plan.price < kept[-1].price:
                kept.append(plan)
        return tuple(kept)

    def _least(
        self,
        key: Callable[[Plan], tuple[float, float]],
        budget: float | None,
        within_s: float | None,
    ) -> Plan | None:
        within = (
            p
            for p in self.plans
            if (budget is None or p.price <= budget) and (within_s is None or p.seconds <= within_s)
        )
        return min(within, key=key, default=None)


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
    plans = _planned(model, possible, terms, loader_rate)
    return Plans(
        tuple(sorted(plans, key=lambda p: (p.seconds, p.price))), tuple(dict.fromkeys(skipped))
    )


def fitting_job(job: TrainingJob) -> TrainingJob | None:
    """The job, or the same global batch in the fewest micro-steps that fit; None where none do."""
    if fits(job).ok:
        return job
    if job.global_batch_size is None:
        return None
    share, most = job.global_batch_size // job.data_parallel, largest_batch(job)
    for micro in range(min(most, job.micro_batch_size), 0, -1):
        if share % micro == 0 and fits(smaller := job.but(grad_accum=share // micro)).ok:
            return smaller
    return None


def _planned(
    model: Predictor, jobs: Sequence[TrainingJob], terms: Terms, loader_rate: float | None
) -> list[Plan]:
    found = model.predict_many(jobs)
    if loader_rate is not None:
        found = [input_bound(one, loader_rate) for one in found]
    return [Plan(one, cost_of(one, terms)) for one in found]


def _too_large(job: TrainingJob) -> str:
    smallest = job
    if job.global_batch_size is not None:
        smallest = job.but(grad_accum=job.global_batch_size // job.data_parallel)
    fit, batch = fits(smallest), smallest.micro_batch_size
    needs = f"batch {batch} needs {gibibytes(fit.need_bytes)} of {gibibytes(fit.have_bytes)}"
    return f"{job.gpus} x {job.gpu}, {job.precision.value}: {needs}"
