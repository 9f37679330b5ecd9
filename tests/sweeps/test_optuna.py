"""A real study: its total beforehand, and no trial beyond its budget."""

from __future__ import annotations

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from predictor.errors import JobError
from predictor.fitting import Fitted
from predictor.sweeps.optuna import HOURS_ATTRIBUTE, REFUSED_ATTRIBUTE, Budget, study_hours

optuna.logging.set_verbosity(optuna.logging.WARNING)
JOB = {"model": "resnet50", "gpu": "a100-sxm4-80gb", "precision": "amp", "steps": 1000}
SPACE = {
    "batch_size": CategoricalDistribution((64, 256)),
    "gpus": IntDistribution(1, 2),
    "lr": FloatDistribution(1e-4, 1e-1, log=True),
}


def run(budget: Budget, trials: int) -> tuple[optuna.Study, list[int]]:
    trained: list[int] = []

    def objective(trial: optuna.Trial) -> float:
        batch = trial.suggest_categorical("batch_size", [64, 256])
        budget.admit(trial, batch_size=batch, gpus=trial.suggest_int("gpus", 1, 2))
        trained.append(trial.number)
        return trial.suggest_float("lr", 1e-4, 1e-1, log=True)

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective, n_trials=trials)
    return study, trained


def test_a_study_is_its_trials_times_their_mean(fitted: Fitted) -> None:
    whole = study_hours(fitted.predictor, SPACE, 100, JOB)
    study, trained = run(Budget(fitted.predictor, gpu_hours=1e9, **JOB), 100)
    assert len(trained) == 100
    drawn = sum(trial.user_attrs[HOURS_ATTRIBUTE] for trial in study.trials)
    assert drawn == pytest.approx(whole.gpu_hours, rel=0.2)  # 100 random draws of four values
    assert whole.low < whole.gpu_hours < whole.high


def test_no_trial_exceeds_the_budget(fitted: Fitted) -> None:
    half = study_hours(fitted.predictor, SPACE, 10, JOB).gpu_hours
    budget = Budget(fitted.predictor, gpu_hours=half, **JOB)
    study, trained = run(budget, 20)
    refused = [t.number for t in study.trials if t.user_attrs[REFUSED_ATTRIBUTE]]
    assert 0 < len(trained) < 20
    assert sorted(trained + refused) == list(range(20))
    assert budget.spent(study) <= half
    states = {t.number: t.state for t in study.trials}
    assert {states[n] for n in refused} == {optuna.trial.TrialState.PRUNED}


def test_what_cannot_be_predicted_is_said(fitted: Fitted) -> None:
    with pytest.raises(JobError, match="epochs"):
        study_hours(fitted.predictor, {"epochs": FloatDistribution(1, 2)}, 3, JOB)
    with pytest.raises(JobError, match="gpu_hours=0"):
        Budget(fitted.predictor, gpu_hours=0, **JOB)
