"""Trees: the exported arrays predict what scikit-learn predicts, and need it no more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import sklearn.ensemble

from predictor.estimate.residual.features import Features, Table, Vocabulary
from predictor.estimate.residual.kernel import Floats
from predictor.estimate.residual.trees import Trees, fit_trees

ROWS = 600
MakeRows = Callable[..., list[Features]]


class Recording(sklearn.ensemble.GradientBoostingRegressor):  # type: ignore[misc]
    """Remembers what the last one of its kind was fitted on, and what it then predicts."""

    answers: Floats

    def fit(self, x: Floats, y: Floats, **options: Any) -> Recording:
        super().fit(x, y, **options)
        Recording.answers = self.predict(x)
        return self


@pytest.fixture(scope="module")
def table(random_rows: MakeRows, vocabulary: Vocabulary) -> Table:
    """Every number of a row is the same one, so that trees split on it again and again."""
    rows = vocabulary.encode(random_rows(ROWS, 6))
    return replace(rows, numbers=np.repeat(rows.numbers[:, :1], rows.numbers.shape[1], axis=1))


@pytest.fixture(scope="module")
def targets(table: Table) -> Floats:
    """Ever steeper in one number, so that trees grow as deep as they can."""
    rng = np.random.default_rng(6)
    found: Floats = np.exp(table.numbers[:, 0]) + 0.1 * rng.normal(size=ROWS)
    return found


@pytest.fixture(scope="module")
def trees(table: Table, targets: Floats) -> Trees:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sklearn.ensemble, "GradientBoostingRegressor", Recording)
        return fit_trees(table, targets)


def test_arrays_predict_what_scikit_learn_predicts(
    trees: Trees, table: Table, targets: Floats
) -> None:
    expected = np.median(targets) + Recording.answers
    np.testing.assert_allclose(trees.predict(table), expected, rtol=0, atol=1e-12)


def test_they_have_learned_something(trees: Trees, table: Table, targets: Floats) -> None:
    error = np.abs(trees.predict(table) - targets).mean()
    assert error < 0.6 * np.abs(np.median(targets) - targets).mean()


def test_stored_arrays_are_the_trees(trees: Trees, table: Table) -> None:
    restored = Trees.from_arrays(trees.to_arrays())
    np.testing.assert_array_equal(restored.predict(table), trees.predict(table))


def test_rows_do_not_know_each_other(trees: Trees, table: Table) -> None:
    backwards = np.arange(ROWS)[::-1]
    np.testing.assert_array_equal(
        trees.predict(table.take(backwards)), trees.predict(table)[backwards]
    )
    assert trees.predict(table.take(np.array([], dtype=np.intp))).shape == (0,)


def test_unknown_words_get_an_answer_within_those_seen(trees: Trees, table: Table) -> None:
    strange = Table(np.full_like(table.codes, -1), table.numbers * 100, table.options)
    seen = trees.predict(table)
    low, high = seen.min() - np.ptp(seen), seen.max() + np.ptp(seen)
    assert ((trees.predict(strange) > low) & (trees.predict(strange) < high)).all()
