"""The residual as a whole: two processes over the same rows, which speak by novelty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from predictor.estimate.residual.features import CATEGORIES, NUMBERS, Features, Vocabulary
from predictor.estimate.residual.kernel import Floats, Hyperparameters
from predictor.estimate.residual.model import (
    HAND_OVER_ROWS,
    MANY_ELSEWHERE,
    FittedResidual,
    HyperparameterSets,
    Residual,
    fit_residual,
    handed_over,
)
from predictor.estimate.residual.novelty import Tier
from predictor.estimate.residual.process import GaussianProcess, Posterior

ROWS = 150
RELATIVE = 1e-2  # the two processes share their robust weights
MakeRows = Callable[..., list[Features]]
MakeHyper = Callable[..., Hyperparameters]


def renamed(row: Features, **words: str) -> Features:
    """The row with other categories."""
    categories = dict(zip(CATEGORIES, row.categories, strict=True)) | words
    return replace(row, categories=tuple(categories.values()))


@pytest.fixture(scope="module")
def sets(random_hyper: MakeHyper) -> HyperparameterSets:
    return HyperparameterSets(random_hyper(1), random_hyper(2))


@pytest.fixture(scope="module")
def targets() -> Floats:
    found: Floats = np.random.default_rng(3).normal(0.3, 0.4, ROWS)
    return found


@pytest.fixture(scope="module")
def residual(random_rows: MakeRows, targets: Floats, sets: HyperparameterSets) -> FittedResidual:
    return fit_residual(random_rows(ROWS), targets, sets)


def said_by(
    hyper: Hyperparameters, rows: list[Features], targets: Floats, asked: list[Features]
) -> tuple[Floats, Floats]:
    """Mean and deviation of a process of its own."""
    vocabulary = Vocabulary.of(rows)
    process, _ = GaussianProcess.fit(vocabulary, vocabulary.encode(rows), targets, hyper)
    new = vocabulary.encode(asked)
    posterior = process.predict(new, hyper.noise_of(vocabulary, new))
    return posterior.mean, posterior.deviation


class TestWhoSpeaks:
    def test_a_site_is_handed_over_as_it_is_measured(
        self,
        random_rows: MakeRows,
        targets: Floats,
        sets: HyperparameterSets,
        residual: FittedResidual,
    ) -> None:
        rows = random_rows(ROWS)
        found = residual.residual.estimate(rows[:20])
        known, _ = said_by(sets.known, rows, targets, rows[:20])
        novel, _ = said_by(sets.novel, rows, targets, rows[:20])
        sources = Counter(row.categories[0] for row in rows)
        rows_there = np.array([sources[row.categories[0]] for row in rows[:20]])
        share = rows_there / (rows_there + HAND_OVER_ROWS)
        assert {e.tier for e in found} == {Tier.RUN}
        expected = novel + share * (known - novel)
        assert [e.mean for e in found] == pytest.approx(expected.tolist(), rel=RELATIVE)

    def test_hardly_measured_is_of_new_sites_and_well_measured_of_known_ones(self) -> None:
        novel, known = (
            Posterior(np.full(3, m), np.full(3, d)) for m, d in ((0.0, 0.4), (1.0, 0.1))
        )
        found = handed_over(novel, known, np.array([0, HAND_OVER_ROWS, 1e9]))
        assert found.mean == pytest.approx([0.0, 0.5, 1.0])
        assert found.deviation[[0, 2]] == pytest.approx([0.4, 0.1])
        assert found.deviation[0] > found.deviation[1] > found.deviation[2]

    def test_a_new_model_at_a_new_site_has_the_intervals_of_new_sites(
        self, random_rows: MakeRows, residual: FittedResidual
    ) -> None:
        asked = [renamed(r, source="new", model="new") for r in random_rows(40)]
        for estimate in residual.residual.estimate(asked):
            assert (estimate.tier, estimate.like) == (Tier.MODEL, Tier.SITE)

    def test_several_gpus_take_longer_at_a_site_that_nobody_measured(
        self, random_rows: MakeRows, residual: FittedResidual
    ) -> None:
        row, gpus = renamed(random_rows(1)[0], source="new"), NUMBERS.index("gpus")
        one = replace(row, numbers=(*row.numbers[:gpus], 0.0, *row.numbers[gpus + 1 :]))
        two = replace(row, numbers=(*row.numbers[:gpus], 1e-9, *row.numbers[gpus + 1 :]))
        means = [found.mean for found in residual.residual.estimate([one, two])]
        assert means[1] - means[0] == pytest.approx(np.log(MANY_ELSEWHERE), abs=1e-5)
        known = [replace(each, categories=random_rows(1)[0].categories) for each in (one, two)]
        means = [found.mean for found in residual.residual.estimate(known)]
        assert means[1] - means[0] == pytest.approx(0, abs=0.02)

    def test_what_missed_further_at_other_sites_is_less_sure_at_a_new_one(
        self, random_rows: MakeRows, sets: HyperparameterSets
    ) -> None:
        rows = random_rows(ROWS)
        host = np.array([row.numbers[NUMBERS.index("host")] for row in rows])
        noise = np.random.default_rng(1).normal(size=ROWS)
        found = fit_residual(rows, noise * np.exp(2 * host), sets).residual
        asked = [renamed(r, source="new") for r in rows]
        estimates = np.array([one.deviation for one in found.estimate(asked)])
        assert np.corrcoef(estimates, host)[0, 1] > 0.5
        again = Residual.from_stored(found.to_arrays(), found.to_state()).estimate(asked)
        assert [one.deviation for one in again] == pytest.approx(estimates.tolist())

    def test_new_sites_and_models_are_of_the_novel_set(
        self,
        random_rows: MakeRows,
        targets: Floats,
        sets: HyperparameterSets,
        residual: FittedResidual,
    ) -> None:
        rows = random_rows(ROWS)
        asked = [renamed(r, source="new") for r in rows[:10]]
        asked += [renamed(r, model="new") for r in rows[:10]]
        found = residual.residual.estimate(asked)
        _, deviation = said_by(sets.novel, rows, targets, asked)
        spread = residual.residual.spread
        assert spread is not None
        deviation[:10] *= spread.factors(residual.residual.vocabulary.encode(asked[:10]))
        assert [e.tier for e in found] == [Tier.SITE] * 10 + [Tier.MODEL] * 10
        assert [e.deviation for e in found] == pytest.approx(deviation.tolist(), rel=RELATIVE)

    def test_a_row_does_not_depend_on_who_is_asked_with_it(
        self, random_rows: MakeRows, residual: FittedResidual
    ) -> None:
        rows = random_rows(12)
        mixed = [renamed(r, source="new") if i % 2 else r for i, r in enumerate(rows)]
        together = residual.residual.estimate(mixed)
        for row, estimate in zip(mixed, together, strict=True):
            (alone,) = residual.residual.estimate([row])
            assert alone.tier is estimate.tier
            assert alone.mean == pytest.approx(estimate.mean)
            assert alone.deviation == pytest.approx(estimate.deviation)

    def test_a_new_model_stays_within_the_corrections_ever_seen(
        self, random_rows: MakeRows, targets: Floats, residual: FittedResidual
    ) -> None:
        asked = [renamed(r, model="new") for r in random_rows(ROWS)]
        means = [e.mean for e in residual.residual.estimate(asked)]
        assert targets.min() <= min(means) <= max(means) <= targets.max()


class TestHeldOut:
    def test_each_tier_has_its_own(self, residual: FittedResidual) -> None:
        assert residual.held_out.keys() == set(Tier)
        for held in residual.held_out.values():
            usable = np.isfinite(held.mean)
            assert usable.any()
            assert (held.deviation[usable] > 0).all()

    def test_counts_are_predicted_without_any_row_on_several_gpus(
        self, random_rows: MakeRows, targets: Floats, sets: HyperparameterSets
    ) -> None:
        """Whatever several GPUs measured: a model alone is told by its one-GPU rows."""
        rows = [renamed(r, model="one") for r in random_rows(ROWS)]
        many = np.array([r.numbers[NUMBERS.index("gpus")] > 0 for r in rows])
        assert 0 < many.sum() < ROWS
        other = np.where(many, targets + 5, targets)
        residuals = [fit_residual(rows, y, sets) for y in (targets, other)]
        for found in residuals:
            held = found.held_out[Tier.COUNT].mean
            assert np.isnan(held[~many]).all()
            assert np.nanmax(np.abs(held)) < 3

    def test_no_row_is_held_out_from_itself(
        self, residual: FittedResidual, targets: Floats
    ) -> None:
        for held in residual.held_out.values():
            usable = np.isfinite(held.mean)
            assert not np.isclose(held.mean, targets)[usable].any()

    def test_the_noise_of_a_site_says_nothing_of_it_as_a_new_one(
        self, random_rows: MakeRows, targets: Floats, sets: HyperparameterSets
    ) -> None:
        rows = random_rows(ROWS)
        source = rows[0].categories[0]
        mine = np.array([r.categories[0] == source for r in rows])
        deviations = []
        for factor in (1.0, 20.0):
            novel = replace(sets.novel, noise_by_source={source: factor})
            held = fit_residual(rows, targets, replace(sets, novel=novel)).held_out
            deviations.append(held[Tier.SITE].deviation[mine])
        # What other sites teach the spread rests on the rows of this one, too.
        np.testing.assert_allclose(deviations[0], deviations[1], rtol=0.2)


class TestStored:
    def test_arrays_and_state_are_the_residual(
        self, random_rows: MakeRows, residual: FittedResidual
    ) -> None:
        own = residual.residual
        restored = Residual.from_stored(own.to_arrays(), own.to_state())
        rows = random_rows(30, seed=5)
        asked = [*rows, *(renamed(r, source="new") for r in rows)]
        assert restored.estimate(asked) == own.estimate(asked)
