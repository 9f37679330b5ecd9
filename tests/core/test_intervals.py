"""Conformal intervals: they hold what they promise, by counting and not by assumption."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.estimate.intervals import MAX_SCORES, MIN_SCORES, Intervals, calibrate, factor
from predictor.estimate.residual.kernel import Floats
from predictor.estimate.residual.novelty import Tier

LEVELS = (0.9, 0.95, 0.99)

SCORES = st.lists(st.floats(-20, 20, allow_subnormal=False), min_size=MIN_SCORES, max_size=260).map(
    np.array
)
PARTS = st.floats(0.001, 0.999)


def intervals(scores: Floats) -> Intervals:
    return calibrate({Tier.RUN: (scores, np.ones(len(scores)))})


@given(scores=SCORES, one=PARTS, other=PARTS)
def test_a_higher_level_is_never_lower(scores: Floats, one: float, other: float) -> None:
    found = intervals(scores)
    low, high = sorted((one, other))
    assert found.quantile(Tier.RUN, low) <= found.quantile(Tier.RUN, high)
    assert factor(found.scores[Tier.RUN], 0.3, low) <= factor(found.scores[Tier.RUN], 0.3, high)


@given(scores=SCORES, narrow=st.floats(0.01, 0.98), wider=st.floats(0.001, 0.01))
def test_intervals_nest(scores: Floats, narrow: float, wider: float) -> None:
    found = intervals(scores)

    def ends(level: float) -> tuple[float, float]:
        tail = (1 - level) / 2
        return found.quantile(Tier.RUN, tail), found.quantile(Tier.RUN, 1 - tail)

    (inner_low, inner_high), (low, high) = ends(narrow), ends(narrow + wider)
    assert low <= inner_low <= inner_high <= high


@given(scores=SCORES, deviation=st.floats(0.01, 2), more=st.floats(1, 3))
def test_less_certainty_is_wider(scores: Floats, deviation: float, more: float) -> None:
    found = intervals(np.abs(scores))
    own = found.scores[Tier.RUN]
    assert factor(own, deviation, 0.95) <= factor(own, deviation * more, 0.95)


@given(scores=SCORES, level=st.sampled_from((0.6, 0.8, 0.9, 0.95)))
def test_each_score_against_the_others_is_below_the_quantile_often_enough(
    scores: Floats, level: float
) -> None:
    """The finite-sample guarantee of split conformal prediction, by leaving each score out."""
    below = above = 0
    for i, score in enumerate(scores):
        found = Intervals({Tier.RUN: np.sort(np.delete(scores, i))})
        below += score <= found.quantile(Tier.RUN, level)
        above += score >= found.quantile(Tier.RUN, 1 - level)
    assert below / len(scores) >= level
    assert above / len(scores) >= level


def test_the_rank_is_exact() -> None:
    found = Intervals({Tier.RUN: np.arange(1.0, 100.0)})  # 99 scores: rank = 100 x level
    assert found.quantile(Tier.RUN, 0.95) == 95
    assert found.quantile(Tier.RUN, 0.951) == 96
    assert found.quantile(Tier.RUN, 0.25) == 25
    assert found.quantile(Tier.RUN, 0.249) == 24
    assert found.quantile(Tier.RUN, 0.5) == 50
    assert (found.quantile(Tier.RUN, 0.9999), found.quantile(Tier.RUN, 0.0001)) == (99, 1)


@pytest.mark.parametrize("level", LEVELS)
def test_coverage_of_scores_that_are_skewed_and_heavy_tailed(level: float) -> None:
    rng = np.random.default_rng(7)
    tail = (1 - level) / 2
    hits = []
    for _ in range(400):
        scores = np.sinh(rng.standard_t(4, 450)) + rng.exponential(size=450)
        found = intervals(scores[:400])
        low, high = found.quantile(Tier.RUN, tail), found.quantile(Tier.RUN, 1 - tail)
        hits.append(np.mean((scores[400:] >= low) & (scores[400:] <= high)))
    assert level - 0.005 < np.mean(hits) < level + 0.012


def test_many_scores_are_thinned_without_losing_the_tails() -> None:
    scores = np.random.default_rng(8).standard_cauchy(20 * MAX_SCORES)
    thin, whole = intervals(scores), Intervals({Tier.RUN: np.sort(scores)})
    assert len(thin.scores[Tier.RUN]) == MAX_SCORES
    for level in (0.005, 0.025, 0.5, 0.975, 0.995):
        share = np.mean(scores <= thin.quantile(Tier.RUN, level))
        assert share == pytest.approx(level, abs=0.001)
        assert np.sign(thin.quantile(Tier.RUN, level)) == np.sign(whole.quantile(Tier.RUN, level))


def test_scores_are_errors_in_units_of_their_deviation() -> None:
    errors, deviations = np.linspace(-1, 1, MIN_SCORES), np.linspace(0.1, 0.5, MIN_SCORES)
    found = calibrate({Tier.SITE: (errors, deviations)})
    np.testing.assert_array_equal(found.scores[Tier.SITE], np.sort(errors / deviations))


def test_rows_without_a_held_out_prediction_do_not_count() -> None:
    errors = np.append(np.linspace(-1, 1, 2 * MIN_SCORES), [np.nan, 0.5])
    deviations = np.append(np.ones(2 * MIN_SCORES + 1), np.nan)
    found = calibrate({Tier.MODEL: (errors, deviations)})
    assert len(found.scores[Tier.MODEL]) == 2 * MIN_SCORES


def test_a_thin_tier_borrows_from_all() -> None:
    many, few = np.linspace(-1, 1, 5 * MIN_SCORES), np.full(MIN_SCORES - 1, 9.0)
    errors = {Tier.RUN: many, Tier.SITE: few}
    found = calibrate({tier: (e, np.ones(len(e))) for tier, e in errors.items()})
    np.testing.assert_array_equal(found.scores[Tier.RUN], many)
    np.testing.assert_array_equal(found.scores[Tier.SITE], np.concatenate([many, few]))


def test_a_source_with_many_rows_counts_as_one() -> None:
    scores = np.concatenate([np.linspace(-1, 1, 2000), np.linspace(9, 11, 200)])
    weights = np.concatenate([np.full(2000, 1 / 2000), np.full(200, 1 / 200)])
    errors = {"site": (scores, np.ones(2200))}
    alike = calibrate(errors, {"site": weights})
    assert alike.quantile("site", 0.25) == pytest.approx(0, abs=0.02)
    assert alike.quantile("site", 0.75) == pytest.approx(10, abs=0.02)
    assert calibrate(errors).quantile("site", 0.75) < 1


def test_stored_scores_are_the_intervals() -> None:
    found = intervals(np.random.default_rng(9).normal(size=100))
    restored = Intervals.from_arrays(found.to_arrays())
    assert restored.scores.keys() == found.scores.keys()
    np.testing.assert_array_equal(restored.scores[Tier.RUN], found.scores[Tier.RUN])
