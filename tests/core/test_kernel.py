"""The covariance of the residual: a covariance, however it is computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from initial_hyper import initial

from predictor.estimate.residual.features import (
    CATEGORIES,
    NUMBERS,
    EncodedRows,
    Features,
    Vocabulary,
)
from predictor.estimate.residual.kernel import (
    TERMS,
    CrossCovariance,
    Hyperparameters,
    covariance,
)

INITIAL = initial()
ROUNDING = 1e-5  # terms are summed from single precision

MakeTable = Callable[..., EncodedRows]
MakeHyper = Callable[..., Hyperparameters]


@pytest.fixture(scope="session")
def table(random_rows: Callable[..., list[Features]], vocabulary: Vocabulary) -> MakeTable:
    return lambda rows, seed=0: vocabulary.encode(random_rows(rows, seed))


class TestTerms:
    def test_names_tell_terms_apart(self) -> None:
        assert len({t.name for t in TERMS}) == len(TERMS)

    def test_terms_are_made_of_features(self) -> None:
        for term in TERMS:
            assert set(term.categories) <= set(CATEGORIES)
            assert set(term.numbers) <= set(NUMBERS)

    def test_every_term_has_what_learning_needs(self) -> None:
        assert INITIAL.deviations.keys() == {t.name for t in TERMS}
        scales = {t.name: set(t.scales) for t in TERMS if t.scales}
        assert {name: set(s) for name, s in INITIAL.scales.items()} == scales


class TestCovariance:
    @given(seed=st.integers(0, 10_000), rows=st.integers(1, 40))
    def test_is_symmetric_and_positive(
        self, table: MakeTable, random_hyper: MakeHyper, seed: int, rows: int
    ) -> None:
        matrix = covariance(table(rows, seed), random_hyper(seed))
        np.testing.assert_allclose(matrix, matrix.T, rtol=ROUNDING)
        assert np.linalg.eigvalsh(matrix).min() > -1e-7 * np.trace(matrix)

    def test_the_variance_of_a_row_is_the_prior(
        self, table: MakeTable, random_hyper: MakeHyper
    ) -> None:
        hyper = random_hyper(1)
        np.testing.assert_allclose(
            np.diag(covariance(table(30), hyper)), hyper.prior_variance, ROUNDING
        )

    def test_no_two_rows_are_closer_than_one_row_to_itself(
        self, table: MakeTable, random_hyper: MakeHyper
    ) -> None:
        hyper = random_hyper(2)
        assert covariance(table(30), hyper).max() <= hyper.prior_variance * (1 + ROUNDING)

    def test_chunks_do_not_matter(self, table: MakeTable) -> None:
        rows = table(50)
        whole = covariance(rows, INITIAL)
        np.testing.assert_allclose(covariance(rows, INITIAL, chunk=7), whole, rtol=ROUNDING)

    def test_order_of_rows_does_not_matter(self, table: MakeTable) -> None:
        rows, order = table(40), np.random.default_rng(3).permutation(40)
        shuffled = covariance(rows.take(order), INITIAL)
        np.testing.assert_allclose(shuffled, covariance(rows, INITIAL)[np.ix_(order, order)])

    @settings(max_examples=30)
    @given(seed=st.integers(0, 10_000), new=st.integers(1, 12))
    def test_between_new_and_fitted_rows_is_the_same_function(
        self, table: MakeTable, random_hyper: MakeHyper, seed: int, new: int
    ) -> None:
        rows, hyper = table(30 + new, seed), random_hyper(seed)
        whole = covariance(rows, hyper)
        fitted = rows.take(np.arange(30))
        cross = CrossCovariance(fitted, hyper)(rows.take(np.arange(30, 30 + new)))
        np.testing.assert_allclose(cross, whole[30:, :30], rtol=ROUNDING)

    @settings(max_examples=30)
    @given(seed=st.integers(0, 10_000), data=st.data())
    def test_among_fitted_rows_is_the_same_function(
        self, table: MakeTable, random_hyper: MakeHyper, seed: int, data: st.DataObject
    ) -> None:
        rows, hyper = table(30, seed), random_hyper(seed)
        some = np.array(data.draw(st.lists(st.integers(0, 29), min_size=1, unique=True)))
        among = CrossCovariance(rows, hyper).among(some)
        whole = covariance(rows, hyper)
        np.testing.assert_allclose(among, whole[np.ix_(some, some)], rtol=ROUNDING)

    def test_unknown_categories_equal_nothing(self, table: MakeTable) -> None:
        rows = table(20)
        unknown = replace(rows, codes=np.full_like(rows.codes, -1))
        everywhere = {t.name: 0.0 for t in TERMS} | {
            t.name: INITIAL.deviations[t.name] for t in TERMS if not t.categories
        }
        only_physics = replace(INITIAL, deviations=everywhere)
        np.testing.assert_allclose(
            CrossCovariance(rows, INITIAL)(unknown), CrossCovariance(rows, only_physics)(unknown)
        )
        np.testing.assert_allclose(
            covariance(unknown, INITIAL), covariance(unknown, only_physics), rtol=ROUNDING
        )

    def test_farther_rows_are_less_alike(self, table: MakeTable) -> None:
        rows = table(2)
        same = replace(
            rows,
            codes=rows.codes[[0, 0]],
            numbers=rows.numbers[[0, 0]],
            options=rows.options[[0, 0]],
        )
        found = []
        for shift in (0.0, 0.5, 1.0, 4.0):
            numbers = same.numbers.copy()
            numbers[1] += shift
            found.append(covariance(replace(same, numbers=numbers), INITIAL)[0, 1])
        assert found == sorted(found, reverse=True)
        assert found[0] > found[1] > found[2] > found[3] > 0
