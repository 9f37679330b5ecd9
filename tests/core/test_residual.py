"""The residual as a whole: two processes and trees over the same rows, chosen by novelty."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from predictor.estimate.residual.features import CATEGORIES, Features, Vocabulary
from predictor.estimate.residual.kernel import Floats, Hyperparameters
from predictor.estimate.residual.model import (
    FittedResidual,
    HyperparameterSets,
    Residual,
    fit_residual,
)
from predictor.estimate.residual.novelty import Tier
from predictor.estimate.residual.process import GaussianProcess

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
    def test_measured_configurations_are_of_the_known_set(
        self,
        random_rows: MakeRows,
        targets: Floats,
        sets: HyperparameterSets,
        residual: FittedResidual,
    ) -> None:
        rows = random_rows(ROWS)
        found = residual.residual.estimate(rows[:20])
        mean, deviation = said_by(sets.known, rows, targets, rows[:20])
        assert {e.tier for e in found} == {Tier.RUN}
        assert [e.mean for e in found] == pytest.approx(mean.tolist(), rel=RELATIVE)
        assert [e.deviation for e in found] == pytest.approx(deviation.tolist(), rel=RELATIVE)

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

    def test_no_row_is_held_out_from_itself(
        self, residual: FittedResidual, targets: Floats
    ) -> None:
        for held in residual.held_out.values():
            usable = np.isfinite(held.mean)
            assert not np.isclose(held.mean, targets)[usable].any()

    def test_rows_of_a_model_measured_at_one_site_are_no_new_site(
        self, random_rows: MakeRows, targets: Floats, sets: HyperparameterSets
    ) -> None:
        rows = random_rows(ROWS)
        rows[:5] = [renamed(r, model="once", source="source1") for r in rows[:5]]
        held = fit_residual(rows, targets, sets).held_out[Tier.SITE]
        assert np.isnan(held.mean[:5]).all()
        assert np.isfinite(held.mean[5:]).all()


class TestStored:
    def test_arrays_and_state_are_the_residual(
        self, random_rows: MakeRows, residual: FittedResidual
    ) -> None:
        own = residual.residual
        restored = Residual.from_stored(own.to_arrays(), own.to_state())
        rows = random_rows(30, seed=5)
        asked = [*rows, *(renamed(r, source="new") for r in rows)]
        assert restored.estimate(asked) == own.estimate(asked)
