"""Optuna studies: what one will take, and trials that its budget does not allow.

Needs ``pip install 'precision-time[sweep]'``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import JobError
from ...estimate.core import Predictor
from ...estimate.prediction import Prediction
from ...job.training_job import JOB_FIELDS
from ...optional import needs
from ...units import gibibytes
from ..cost import Terms, cost_of
from .search import MOST_CONFIGURATIONS, Space, job_of, search_of

with needs("sweep"):
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

HOURS_ATTRIBUTE = "predicted_gpu_hours"
AMOUNT_ATTRIBUTE = "predicted_cost"
REFUSED_ATTRIBUTE = "refused_by_budget"
TOO_LARGE_ATTRIBUTE = "does_not_fit_memory"
FREE = Terms()


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyHours:
    """GPU-hours of a study, and the ends of 95 % where every trial errs alike.

    ``amount`` is money, None where a GPU has no price; ``too_large`` the share of trials that do
    not fit the memory of their GPUs, and take nothing.
    """

    gpu_hours: float
    low: float
    high: float
    amount: float | None
    energy_j: float
    too_large: float


def study_hours(
    model: Predictor,
    space: Mapping[str, BaseDistribution],
    n_trials: int,
    job: Mapping[str, Any],
    terms: Terms = FREE,
) -> StudyHours:
    """What a study takes whose sampler draws every value of its space alike.

    Only trials that do not fit the memory of their GPUs are taken as pruned.

    Parameters of ``space`` that are fields of TrainingJob change the time, all others do not.
    Raises JobError for an impossible job, and for a continuous range of a field.
    """
    varied = {name: _values(name, of) for name, of in space.items() if name in JOB_FIELDS}
    count = math.prod(map(len, varied.values()))
    if count > MOST_CONFIGURATIONS:
        raise JobError("space", count, f"expected up to {MOST_CONFIGURATIONS} combinations")
    search = search_of(model, Space.model_construct(job=dict(job), vary=varied), terms)
    each, total, (low, high) = n_trials / count, search.total(), search.interval()
    return StudyHours(
        gpu_hours=each * total.gpu_hours,
        low=each * low.gpu_hours,
        high=each * high.gpu_hours,
        amount=None if total.amount is None else each * total.amount,
        energy_j=each * total.energy_j,
        too_large=len(search.too_large) / count,
    )


class Budget:
    """The GPU-hours or the money of a study; ``job`` are the fields that no trial changes.

    ``amount`` is in the currency of the tariff of ``terms``, in which every GPU needs a price.

    >>> def objective(trial):
    ...     budget.admit(trial, batch_size=trial.suggest_categorical("batch_size", [64, 128]))
    ...     return train(trial)
    """

    def __init__(
        self,
        predictor: Predictor,
        /,
        *,
        gpu_hours: float = math.inf,
        amount: float = math.inf,
        terms: Terms = FREE,
        **job: Any,
    ) -> None:
        for name, bound in (("gpu_hours", gpu_hours), ("amount", amount)):
            if not bound > 0:
                raise JobError(name, bound, "expected a number above 0")
        self.gpu_hours = gpu_hours
        self.amount = amount
        self._terms = terms
        self._predictor = predictor
        self._job = job

    def spent(self, study: optuna.Study, attribute: str = HOURS_ATTRIBUTE) -> float:
        """GPU-hours predicted for the trials that were admitted, running ones included.

        ``attribute`` may ask for the money instead. They are kept with the study: workers sharing
        its storage share the budget, but two that ask at the same moment may both be admitted.
        """
        admitted = (
            t for t in study.get_trials(deepcopy=False) if not t.user_attrs.get(REFUSED_ATTRIBUTE)
        )
        return sum(float(t.user_attrs.get(attribute) or 0.0) for t in admitted)

    def admit(self, trial: optuna.Trial, **fields: Any) -> Prediction:
        """The prediction of a trial with these fields, also kept in its user attributes.

        Raises optuna.TrialPruned where it would exceed what is left or does not fit the memory of
        its GPUs, JobError for an impossible job or one without a price where there is an amount.
        """
        found = self._predictor.predict(job_of({**self._job, **fields}))
        reason, fit = self._too_dear(found, trial.study), found.memory
        if not fit.ok:
            needed = f"{gibibytes(fit.need_bytes)} of {gibibytes(fit.have_bytes)} per GPU"
            reason = f"it does not fit: {needed} are needed"
        trial.set_user_attr(REFUSED_ATTRIBUTE, bool(reason))
        trial.set_user_attr(TOO_LARGE_ATTRIBUTE, not fit.ok)
        trial.set_user_attr(HOURS_ATTRIBUTE, _hours(found))
        trial.set_user_attr(AMOUNT_ATTRIBUTE, cost_of(found, self._terms).amount)
        if reason:
            raise optuna.TrialPruned(reason)
        return found

    def _too_dear(self, found: Prediction, study: optuna.Study) -> str:
        hours, left = _hours(found), self.gpu_hours - self.spent(study)
        if hours > left:
            return f"{hours:.3g} GPU-hours are predicted, {left:.3g} are left"
        if self.amount == math.inf:
            return ""
        cost = cost_of(found, self._terms)
        if cost.amount is None:
            raise JobError("amount", self.amount, f"{found.job.gpu} has no price in the tariff")
        left = self.amount - self.spent(study, AMOUNT_ATTRIBUTE)
        if cost.amount > left:
            return f"{cost.amount:.3g} {cost.currency} are predicted, {left:.3g} are left"
        return ""


def _hours(found: Prediction) -> float:
    if found.gpu_hours is None:
        raise JobError("steps", None, "GPU-hours need a length: steps or epochs")
    return found.gpu_hours


def _values(name: str, of: BaseDistribution) -> list[Any]:
    if isinstance(of, CategoricalDistribution):
        return list(of.choices)
    if isinstance(of, IntDistribution):
        return list(range(of.low, of.high + 1, of.step))
    raise JobError(name, of, "expected a categorical or whole-number distribution")
