"""A real study: its total beforehand, and no trial beyond its budget."""

from __future__ import annotations

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from predictor.errors import JobError
from predictor.estimate.fitting import Fitted
from predictor.planning.cost import Tariff, Terms
from predictor.planning.sweeps.optuna import (
    AMOUNT_ATTRIBUTE,
    HOURS_ATTRIBUTE,
    REFUSED_ATTRIBUTE,
    TOO_LARGE_ATTRIBUTE,
    Budget,
    study_hours,
)

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


def test_money_is_a_budget_too(fitted: Fitted) -> None:
    terms = Terms(Tariff("EUR", {"a100-sxm4-80gb": 2.0}))
    whole = study_hours(fitted.predictor, SPACE, 10, JOB, terms)
    assert whole.amount == pytest.approx(2 * whole.gpu_hours)
    assert whole.energy_j > 0
    budget = Budget(fitted.predictor, amount=whole.amount / 2, terms=terms, **JOB)
    study, trained = run(budget, 20)
    assert 0 < len(trained) < 20
    assert budget.spent(study, AMOUNT_ATTRIBUTE) <= whole.amount / 2
    free = Budget(fitted.predictor, amount=1.0, **JOB)
    with pytest.raises(JobError, match="no price"):
        run(free, 1)


def test_a_trial_that_does_not_fit_is_pruned_and_takes_nothing(fitted: Fitted) -> None:
    space = {"batch_size": CategoricalDistribution((64, 65536))}
    whole = study_hours(fitted.predictor, space, 10, JOB)
    assert whole.too_large == 0.5
    budget = Budget(fitted.predictor, gpu_hours=1e9, **JOB)
    study = optuna.create_study()
    with pytest.raises(optuna.TrialPruned, match="does not fit"):
        budget.admit(study.ask(), batch_size=65536)
    assert budget.spent(study) == 0
    assert study.trials[0].user_attrs[TOO_LARGE_ATTRIBUTE]


def test_what_cannot_be_predicted_is_said(fitted: Fitted) -> None:
    with pytest.raises(JobError, match="epochs"):
        study_hours(fitted.predictor, {"epochs": FloatDistribution(1, 2)}, 3, JOB)
    with pytest.raises(JobError, match="gpu_hours=0"):
        Budget(fitted.predictor, gpu_hours=0, **JOB)
