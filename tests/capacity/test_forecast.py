"""The forecast: whole weeks of demand, an interval that grows, a refusal where little is known."""

from __future__ import annotations

import numpy as np
import pytest
from capacity_jobs import DAY_S, START_S, frame, job

from predictor.capacity.forecast import LEAST_WEEKS, WEEKS_AHEAD, demands, forecast, forecasts

WEEK_S = 7 * DAY_S


def seasonal(weeks: int, noise: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    rng = np.random.default_rng(3)
    week = np.array([100.0, 110, 105, 100, 95, 30, 20])
    return np.tile(week, weeks) + rng.normal(0, noise, 7 * weeks)


def test_too_little_history_is_refused_with_the_reason() -> None:
    found, notes = forecasts(frame([job()]), START_S + 2 * WEEK_S, {})
    assert found == ()
    assert str(LEAST_WEEKS) in notes[0]


def test_an_empty_history_is_refused() -> None:
    assert forecasts(frame([]), START_S, {}) == ((), ("no forecast: no whole week of history",))


def test_demand_counts_in_the_day_of_submission_with_all_its_hours() -> None:
    long = job(gpus=2, end_s=START_S + 3 * DAY_S)
    daily = demands(frame([long]), START_S + WEEK_S)
    assert daily["hours"].to_list() == [pytest.approx(2 * 72)]


def test_steady_demand_goes_on_within_its_interval() -> None:
    found = forecast("v100", seasonal(10, 5.0), START_S, gpus=None)
    ahead = [week.expected for week in found.weeks if week.expected is not None]
    assert len(ahead) == WEEKS_AHEAD
    for week in ahead:
        assert week.low < week.median < week.high
        assert week.median == pytest.approx(560, rel=0.1)


def test_louder_demand_has_a_wider_interval() -> None:
    widths = []
    for noise in (2.0, 20.0):
        ahead = forecast("v100", seasonal(10, noise), START_S, gpus=None).weeks[-1].expected
        assert ahead is not None
        widths.append(ahead.high - ahead.low)
    assert widths[0] < widths[1]


def test_saturation_is_the_first_week_beyond_capacity() -> None:
    days = seasonal(10, 5.0)
    assert forecast("v100", days, START_S, gpus=100).saturates_s is None
    assert forecast("v100", days, START_S, gpus=1).saturates_s == START_S + 10 * WEEK_S


def test_demand_that_never_varies_is_expected_to_go_on() -> None:
    last = forecast("v100", np.full(42, 24.0), START_S, gpus=2).weeks[-1].expected
    assert last is not None
    assert (last.low, last.median, last.high) == (168.0, 168.0, 168.0)
