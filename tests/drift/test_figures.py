"""Bias and coverage, in all and by week."""

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest
from drifting import site
from hypothesis import given
from hypothesis import strategies as st

from predictor.site.drift.watch import DriftFigures, weeks_of


def test_bias_is_the_median_share_by_which_runs_take_longer() -> None:
    runs = [replace(o, error=log(1.2), inside=True) for o in site(10, per_week=10, seed=0)]
    found = DriftFigures.of(runs)
    assert found.bias == pytest.approx(0.2)
    assert (found.runs, found.coverage) == (10, 1.0)


def test_a_run_nobody_predicted_counts_for_nothing() -> None:
    found = DriftFigures.of(list(site(10, per_week=10, seed=0)))
    assert (found.runs, found.judged, found.bias, found.coverage) == (0, 0, None, None)


@given(st.integers(1, 2000), st.data())
def test_the_bounds_hold_the_coverage(runs: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, runs))
    one = next(site(1, per_week=1, seed=0))
    found = DriftFigures.of([replace(one, inside=n < hits) for n in range(runs)])
    assert found.coverage_low is not None
    assert found.coverage is not None
    assert found.coverage_high is not None
    assert 0 <= found.coverage_low <= found.coverage + 1e-12
    assert found.coverage - 1e-12 <= found.coverage_high <= 1


def test_weeks_start_on_mondays_and_hold_every_run() -> None:
    runs = [replace(o, error=0.0) for o in site(300, per_week=100, seed=0)]
    weeks = list(weeks_of(runs))
    assert sum(w.figures.runs for w in weeks) == 300
    assert weeks[0].monday == "2023-11-13"  # 1.7e9 s is Tuesday 14 November 2023
    assert [w.monday for w in weeks[1:]] == ["2023-11-20", "2023-11-27", "2023-12-04"]
