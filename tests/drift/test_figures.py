"""Bias and coverage."""

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest
from drifting import site

from predictor.site.drift.watch import DriftFigures


def test_bias_is_the_median_share_by_which_runs_take_longer() -> None:
    runs = [replace(o, error=log(1.2), inside=True) for o in site(10, per_week=10, seed=0)]
    found = DriftFigures.of(runs)
    assert found.bias == pytest.approx(0.2)
    assert (found.runs, found.coverage) == (10, 1.0)


def test_a_run_nobody_predicted_counts_for_nothing() -> None:
    found = DriftFigures.of(list(site(10, per_week=10, seed=0)))
    assert (found.runs, found.judged, found.bias, found.coverage) == (0, 0, None, None)
