"""Optuna studies: what one will take, and trials that its budget does not allow.

Needs ``pip install 'precision-time[sweep]'``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from ..core import Predictor
from ..errors import JobError, NotInstalledError
from ..job import JOB_FIELDS
from ..prediction import Prediction
from .space import MOST_CONFIGURATIONS, job_of

try:
    import optuna
    from optuna.distributions import (
        BaseDistribution,
        CategoricalDistribution,
        IntDistribution,
    )
except ImportError as error:
    raise NotInstalledError.of(error, "sweep") from error

HOURS_ATTRIBUTE = "predicted_gpu_hours"
REFUSED_ATTRIBUTE = "refused_by_budget"
LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyHours:
    """GPU-hours of a study, and the ends of 95 % where every trial errs alike."""

    gpu_hours: float
    low: float
    high: float


def study_hours(
    model: Predictor,
    space: Mapping[str, BaseDistribution],
    n_trials: int,
    job: Mapping[str, Any],
) -> StudyHours:
    """What a study takes whose sampler draws every value of its space alike, with no pruning.

    Parameters of ``space`` that are fields of TrainingJob change the time, all others do not.
    Raises JobError for an impossible job, and for a continuous range of a field.
    """
    varied = {name: _values(name, of) for name, of in space.items() if name in JOB_FIELDS}
    count = 1
    for values in varied.values():
        count *= len(values)
    if count > MOST_CONFIGURATIONS:
        raise JobError("space", count, f"up to {MOST_CONFIGURATIONS} combinations are accepted")
    jobs = [
        job_of({**job, **dict(zip(varied, chosen, strict=True))})
        for chosen in product(*varied.values())
    ]
    found = model.predict_many(jobs)
    tail = (1 - LEVEL) / 2
    mean, low, high = (
        n_trials * sum(_hours(one, level) for one in found) / len(found)
        for level in (None, tail, 1 - tail)
    )
    return StudyHours(gpu_hours=mean, low=low, high=high)


class Budget:
    """The GPU-hours of a study; ``job`` are the fields that no trial changes.

    >>> def objective(trial):
    ...     budget.admit(trial, batch_size=trial.suggest_categorical("batch_size", [64, 128]))
    ...     return train(trial)
    """

    def __init__(self, predictor: Predictor, /, *, gpu_hours: float, **job: Any) -> None:
        if not gpu_hours > 0:
            raise JobError("gpu_hours", gpu_hours, "a number above 0 is accepted")
        self.gpu_hours = gpu_hours
        self._predictor = predictor
        self._job = job

    def spent(self, study: optuna.Study) -> float:
        """GPU-hours predicted for the trials that were admitted, running ones included.

        They are kept with the study, so workers that share its storage share the budget; of
        workers that ask at the same moment each may be admitted.
        """
        admitted = (t for t in study.get_trials(deepcopy=False)
                    if not t.user_attrs.get(REFUSED_ATTRIBUTE))  # fmt: skip
        return sum(float(t.user_attrs.get(HOURS_ATTRIBUTE, 0.0)) for t in admitted)

    def admit(self, trial: optuna.Trial, **fields: Any) -> Prediction:
        """The prediction of a trial with these fields, also kept in its user attributes.

        Raises optuna.TrialPruned where it would exceed what is left, JobError for an impossible
        job.
        """
        found = self._predictor.predict(job_of({**self._job, **fields}))
        hours, left = _hours(found, None), self.gpu_hours - self.spent(trial.study)
        refused = hours > left
        trial.set_user_attr(REFUSED_ATTRIBUTE, refused)
        trial.set_user_attr(HOURS_ATTRIBUTE, hours)
        if refused:
            raise optuna.TrialPruned(f"{hours:.3g} GPU-hours are predicted, {left:.3g} are left")
        return found


def _hours(found: Prediction, level: float | None) -> float:
    total_s = found.total_s if level is None else found.total_quantile_s(level)
    if total_s is None:
        raise JobError("steps", None, "GPU-hours need a length: steps or epochs")
    return total_s * found.job.gpus / 3600


def _values(name: str, of: BaseDistribution) -> list[Any]:
    if isinstance(of, CategoricalDistribution):
        return list(of.choices)
    if isinstance(of, IntDistribution):
        return list(range(of.low, of.high + 1, of.step))
    raise JobError(name, of, "a categorical or whole-number distribution is accepted")
