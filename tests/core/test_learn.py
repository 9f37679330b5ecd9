"""Learning: derivatives of the objective are right, and learning makes predictions better."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import learn_hyperparameters as learning
import numpy as np
import pytest
from initial_hyper import initial
from learn_hyperparameters import (
    LearningPlan,
    _leave_out,
    _Logarithms,
    _Loss,
    _subsets,
    learn,
)

from predictor.estimate.measurement import shipped
from predictor.estimate.residual.features import Features, Vocabulary
from predictor.estimate.residual.kernel import TERMS, Floats, Hyperparameters, covariance
from predictor.estimate.residual.novelty import groups
from predictor.estimate.residual.process import Conditioned, condition, leave_out
from predictor.physics.step import StepModel

ROWS = 60
MakeRows = Callable[..., list[Features]]


def conditioned(system: Floats, targets: Floats) -> Conditioned:
    inverse = np.asarray(np.linalg.inv(system), dtype=np.float64)
    noise = np.full(len(targets), 0.01)
    return Conditioned(inverse, inverse @ (targets - 0.1), noise, noise, 0.1)


Objective = Callable[[Conditioned, Floats], tuple[float, Floats]]
OBJECTIVES: dict[str, Objective] = {
    "single rows": lambda f, y: _leave_out(f, y, [np.array([i]) for i in range(ROWS)]),
    "groups": lambda f, y: _leave_out(f, y, np.array_split(np.arange(ROWS), 7)),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives_give_their_derivative_by_the_covariance(
    name: str, random_rows: MakeRows, vocabulary: Vocabulary
) -> None:
    objective = OBJECTIVES[name]
    rng = np.random.default_rng(2)
    table = vocabulary.encode(random_rows(ROWS, 2))
    system = covariance(table, initial()) + 0.01 * np.eye(ROWS)
    targets = rng.normal(size=ROWS)
    _, weight = objective(conditioned(system, targets), targets)
    for _ in range(5):
        direction = rng.normal(size=(ROWS, ROWS))
        direction += direction.T
        step = 1e-6
        up, down = (
            objective(conditioned(system + s * direction, targets), targets)[0]
            for s in (step, -step)
        )
        assert np.vdot(weight, direction) == pytest.approx((up - down) / (2 * step), rel=1e-3)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_slope_of_a_loss_is_that_by_each_hyperparameter(
    name: str, random_rows: MakeRows, vocabulary: Vocabulary
) -> None:
    table = vocabulary.encode(random_rows(ROWS, 6))
    targets = np.random.default_rng(6).normal(size=ROWS)
    logs = _Logarithms(vocabulary.sources)
    theta = logs.start(0.1)
    theta += 0.5 * np.random.default_rng(7).normal(size=len(theta))
    assert logs.hyper(theta).noise == pytest.approx(np.exp(theta[-1]))
    loss = _Loss(table, targets, OBJECTIVES[name], logs, theta, 0.01)
    _, slope = loss(theta)
    for i in range(0, len(theta), 3):
        step = np.where(np.arange(len(theta)) == i, 1e-3, 0.0)
        numeric = (loss(theta + step)[0] - loss(theta - step)[0]) / 2e-3
        assert slope[i] == pytest.approx(numeric, rel=2e-2, abs=1e-4)


def test_the_leave_out_loss_is_the_error_of_leaving_out(
    random_rows: MakeRows, vocabulary: Vocabulary
) -> None:
    rng = np.random.default_rng(3)
    table = vocabulary.encode(random_rows(ROWS, 3))
    targets = rng.normal(size=ROWS)
    fitted = condition(covariance(table, initial()), targets, np.full(ROWS, 0.1))
    parts = np.array_split(rng.permutation(ROWS), 6)
    loss, _ = _leave_out(fitted, targets, parts)
    held = leave_out(fitted, targets, parts)
    assert loss == pytest.approx(np.abs(targets - held.mean).mean())


@pytest.fixture(scope="module")
def taught(random_rows: MakeRows, vocabulary: Vocabulary) -> tuple[Hyperparameters, Floats, Floats]:
    """Learned from targets that depend on the model alone, with little noise."""
    rng = np.random.default_rng(4)
    rows = random_rows(2 * ROWS, 4)
    table = vocabulary.encode(rows)
    targets = table.column("model") * 1.0 + 0.02 * rng.normal(size=len(rows))
    half = np.arange(ROWS)
    losses: list[float] = []
    plan = LearningPlan(((), ("model",)), rounds=4, rows=ROWS)
    hyper = learn(
        table.take(half),
        vocabulary,
        targets[half],
        plan,
        lambda stage, loss: losses.append(loss),
    )
    errors = []
    for h in (initial(), hyper):
        fitted = condition(covariance(table, h), targets, h.noise_of(vocabulary, table))
        held = leave_out(fitted, targets, [np.arange(ROWS, 2 * ROWS)])
        errors.append(np.nanmean(np.abs(held.mean - targets)))
    return hyper, np.array(losses), np.array(errors)


def test_learning_explains_the_rows_better(taught: tuple[Hyperparameters, Floats, Floats]) -> None:
    _, losses, _ = taught
    assert len(losses) == 4
    assert losses[1] <= losses[0]


def test_learning_predicts_other_rows_better(
    taught: tuple[Hyperparameters, Floats, Floats],
) -> None:
    _, _, (before, after) = taught
    assert after < before


def test_learning_finds_what_the_targets_depend_on(
    taught: tuple[Hyperparameters, Floats, Floats],
) -> None:
    hyper, _, _ = taught
    of_a_model = {term.name for term in TERMS if "model" in term.categories}
    others = hyper.deviations.keys() - of_a_model
    assert max(map(hyper.deviations.__getitem__, of_a_model)) > 2 * max(
        map(hyper.deviations.__getitem__, others)
    )


def test_learning_is_repeatable(random_rows: MakeRows, vocabulary: Vocabulary) -> None:
    table = vocabulary.encode(random_rows(40, 5))
    targets = np.random.default_rng(5).normal(size=40)
    plan = LearningPlan(((), ("source",)), rounds=2, rows=30)
    one, other = (learn(table, vocabulary, targets, plan) for _ in range(2))
    assert one == other


def test_a_table_brings_no_more_rows_than_the_plan_says(
    random_rows: MakeRows, vocabulary: Vocabulary
) -> None:
    table = vocabulary.encode(random_rows(ROWS, 5))
    each = [len(rows) for rows in groups(table, ("source", "model"))]
    chosen = next(_subsets(table, LearningPlan(((),), rows=ROWS, table_rows=2)))
    assert len(chosen) == sum(min(n, 2) for n in each) < ROWS


def test_learning_needs_nothing_that_was_stored(
    steps: StepModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = shipped()[:60]
    monkeypatch.setattr(learning, "fit_steps", lambda: steps)
    monkeypatch.setattr(learning, "shipped", lambda: few)
    monkeypatch.setattr("predictor.estimate.fitting.stored_hyperparameters", pytest.fail)
    plan, path = LearningPlan(((),), rounds=1, iterations=1, rows=40), tmp_path / "learned.json"
    sets = learning.learn_and_store((plan, replace(plan, noise=0.2)), path=path)
    stored = json.loads(path.read_text())
    assert stored["known"]["noise"] == pytest.approx(sets.known.noise, rel=1e-3)
    assert sets.known.noise < sets.novel.noise


@pytest.mark.slow
def test_the_tool_learns_known_and_novel_configurations(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[LearningPlan] = []
    nothing = Hyperparameters({}, {}, 0.1)
    monkeypatch.setattr(learning, "learn", lambda *given: asked.append(given[3]) or nothing)
    monkeypatch.setattr(learning, "price", lambda *_: ([], []))
    monkeypatch.setattr(Path, "write_text", lambda *_, **__: None)
    assert learning.main() == 0
    assert [plan.leave_out for plan in asked] == [((),), (("model",), ("source",))]
    assert "hyperparameters.json" in capsys.readouterr().out
