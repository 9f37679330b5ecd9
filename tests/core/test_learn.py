"""Learning: derivatives of both objectives are right, and learning makes predictions better."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from predictor.estimate.residual.features import Features, Vocabulary
from predictor.estimate.residual.kernel import Floats, Hyperparameters, covariance
from predictor.estimate.residual.learn import Schedule, _leave_out, _likelihood, learn
from predictor.estimate.residual.process import Conditioned, condition, leave_out

ROWS = 60
MakeRows = Callable[..., list[Features]]


def conditioned(system: Floats, targets: Floats) -> Conditioned:
    inverse = np.asarray(np.linalg.inv(system), dtype=np.float64)
    noise = np.full(len(targets), 0.01)
    return Conditioned(inverse, inverse @ (targets - 0.1), noise, noise, 0.1)


Objective = Callable[[Conditioned, Floats], tuple[float, Floats]]
OBJECTIVES: dict[str, Objective] = {
    "likelihood": _likelihood,
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
    system = covariance(table, Hyperparameters.initial()) + 0.01 * np.eye(ROWS)
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


def test_the_leave_out_loss_is_the_error_of_leaving_out(
    random_rows: MakeRows, vocabulary: Vocabulary
) -> None:
    rng = np.random.default_rng(3)
    table = vocabulary.encode(random_rows(ROWS, 3))
    targets = rng.normal(size=ROWS)
    fitted = condition(covariance(table, Hyperparameters.initial()), targets, np.full(ROWS, 0.1))
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
    schedule = Schedule(12, 4, leave_out=((), ("model",)), rows=ROWS, rate=0.3)
    hyper = learn(
        table.take(half),
        vocabulary,
        targets[half],
        schedule,
        lambda stage, loss: losses.append(loss),
    )
    errors = []
    for h in (Hyperparameters.initial(), hyper):
        fitted = condition(covariance(table, h), targets, h.noise_of(vocabulary, table))
        held = leave_out(fitted, targets, [np.arange(ROWS, 2 * ROWS)])
        errors.append(np.nanmean(np.abs(held.mean - targets)))
    return hyper, np.array(losses), np.array(errors)


def test_learning_explains_the_rows_better(taught: tuple[Hyperparameters, Floats, Floats]) -> None:
    _, losses, _ = taught
    assert len(losses) == 16
    assert losses[11] < losses[0]


def test_learning_predicts_other_rows_better(
    taught: tuple[Hyperparameters, Floats, Floats],
) -> None:
    _, _, (before, after) = taught
    assert after < before


def test_learning_finds_what_the_targets_depend_on(
    taught: tuple[Hyperparameters, Floats, Floats],
) -> None:
    hyper, _, _ = taught
    assert hyper.deviations["model"] > 0.15 > hyper.deviations["source"]
    assert hyper.deviations["model"] > 2 * np.median(list(hyper.deviations.values()))


def test_learning_is_repeatable(random_rows: MakeRows, vocabulary: Vocabulary) -> None:
    table = vocabulary.encode(random_rows(40, 5))
    targets = np.random.default_rng(5).normal(size=40)
    schedule = Schedule(2, 2, leave_out=((), ("source",)), rows=30)
    assert learn(table, vocabulary, targets, schedule) == learn(
        table, vocabulary, targets, schedule
    )
