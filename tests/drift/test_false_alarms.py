"""False alarms come as often as was chosen, whatever the noise and however many streams."""

from __future__ import annotations

import numpy as np
import pytest
from drifting import WEEK_S, site
from hypothesis import given, settings
from hypothesis import strategies as st

from predictor.site.drift.watch import (
    MIN_EARLIER,
    YEAR_S,
    Chart,
    SequentialRanks,
    limit_for,
    mean_runs_between_alarms,
)

PER_WEEK = 100.0
YEARS = 5
PER_YEAR = PER_WEEK * YEAR_S / WEEK_S


@pytest.mark.slow
def test_years_of_shipped_noise_raise_as_many_as_chosen() -> None:
    """Expected are chosen x YEARS, and a Poisson count exceeds it by 3.1 deviations in 1/1000."""
    charts = {chosen: Chart(limit_for(chosen, PER_YEAR)) for chosen in (1.0, 4.0)}
    alarms = dict.fromkeys(charts, 0)
    for run in site(int(PER_YEAR * YEARS), per_week=PER_WEEK, seed=3):
        for chosen, chart in charts.items():
            alarms[chosen] += chart.add(run)
    for chosen, found in alarms.items():
        expected = chosen * YEARS
        assert expected / 3 < found < expected + 3.1 * expected**0.5


def test_many_streams_raise_no_more_together() -> None:
    """Ten streams share the runs of one: each has its chart, all have one limit."""
    limit = limit_for(6.0, PER_YEAR)
    alarms = 0
    for stream in range(10):
        chart = Chart(limit)
        runs = site(int(PER_YEAR * YEARS / 20), per_week=PER_WEEK / 10, seed=stream)
        alarms += sum(chart.add(run) for run in runs)
    expected = 6.0 * YEARS / 2
    assert alarms < expected + 3.1 * expected**0.5


@pytest.mark.parametrize("limit", [2.0, 3.5])
def test_the_run_length_is_that_of_simulated_uniform_scores(limit: float) -> None:
    rng = np.random.default_rng(1)
    scores = rng.uniform(-np.sqrt(3), np.sqrt(3), 400_000)
    up = down = 0.0
    alarms = 0
    for score in scores.tolist():
        up, down = max(0.0, up + score - 0.4), max(0.0, down - score - 0.4)
        if up > limit or down > limit:
            up = down = 0.0
            alarms += 1
    assert len(scores) / alarms == pytest.approx(mean_runs_between_alarms(limit), rel=0.1)


@settings(max_examples=20)
@given(st.floats(0.01, 100), st.floats(1e3, 1e6))
def test_fewer_false_alarms_need_a_higher_limit(chosen: float, runs: float) -> None:
    limit = limit_for(chosen, runs)
    assert limit_for(chosen / 2, runs) >= limit
    assert limit_for(chosen, runs * 2) >= limit


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=40))
def test_scores_depend_on_order_alone(values: list[float]) -> None:
    """Any increasing transformation, such as another unit, leaves every score as it was."""
    plain, changed = SequentialRanks(), SequentialRanks()
    one = [plain.score("a", v) for v in values]
    assert one == [changed.score("a", 8 * v) for v in values]
    assert one[:MIN_EARLIER] == [None] * min(MIN_EARLIER, len(one))


def test_scores_of_noise_have_mean_zero_and_variance_one() -> None:
    rng = np.random.default_rng(2)
    scores = []
    for like in range(300):
        ranks = SequentialRanks()
        scores += [ranks.score(like, v) for v in rng.standard_cauchy(60).tolist()]
    known = np.array([s for s in scores if s is not None])
    assert abs(known.mean()) < 4 / np.sqrt(len(known))
    assert known.var() == pytest.approx(1.0, rel=0.03)


def test_a_lower_bound_counts_only_above_the_median_of_its_like() -> None:
    ranks = SequentialRanks()
    for value in range(8):
        ranks.score("a", float(value))
    assert ranks.score("a", 1.0, lower_bound=True) is None
    above = ranks.score("a", 9.0, lower_bound=True)
    assert above is not None
    assert above > 1.0
    assert ranks.score("b", 9.0, lower_bound=True) is None
