"""Interruptions: Daly's expectation against a simulation, Young's first order, and laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from predictor.errors import JobError
from predictor.planning.cost import DAY_S, Interruptions

RATES, TIMES = st.floats(0, 20), st.floats(60, 1e6)


def simulated_s(stops: Interruptions, work_s: float, rate: float, runs: int) -> float:
    """Mean of runs that lose what they did since their last checkpoint, and restart."""
    assert stops.every_s is not None
    rng = np.random.default_rng(0)
    segments, total_s = round(work_s / stops.every_s), 0.0
    for _ in range(runs * segments):
        needed_s = stops.every_s + stops.write_s
        while (gap_s := rng.exponential(1 / rate)) < needed_s:
            total_s += gap_s
            while (gap_s := rng.exponential(1 / rate)) < stops.restart_s:
                total_s += gap_s
            total_s += stops.restart_s
    return total_s / runs + segments * (stops.every_s + stops.write_s)


def test_the_expectation_is_what_a_simulation_finds() -> None:
    stops = Interruptions(per_day=12, restart_s=600, every_s=3600, write_s=60)
    expected_s = stops.expected_s(36_000, nodes=2)
    assert expected_s == pytest.approx(simulated_s(stops, 36_000, 24 / DAY_S, 400), rel=0.03)
    assert expected_s > 1.5 * 36_000


def test_rare_interruptions_cost_a_restart_and_half_an_interval() -> None:
    stops = Interruptions(per_day=0.01, restart_s=300, every_s=1800)
    lost_s = stops.expected_s(DAY_S, nodes=1) - DAY_S
    assert lost_s == pytest.approx(0.01 * (300 + 1800 / 2), rel=0.01)
    assert stops.expected(DAY_S, nodes=1) == pytest.approx(0.01, rel=0.01)


def test_without_interruptions_only_checkpoints_cost() -> None:
    assert Interruptions(per_day=0, restart_s=600).expected_s(1e5, 4) == 1e5
    assert Interruptions(per_day=0, every_s=1000, write_s=10).expected_s(1e5, 4) == 1.01e5


@given(RATES, st.floats(0, 3600), st.floats(60, 7200), TIMES, st.integers(1, 4))
def test_laws(rate: float, restart_s: float, every_s: float, work_s: float, nodes: int) -> None:
    stops = Interruptions(per_day=rate, restart_s=restart_s, every_s=every_s)
    never = Interruptions(per_day=rate, restart_s=restart_s)
    expected_s = stops.expected_s(work_s, nodes)
    assert expected_s >= work_s * (1 - 1e-9)
    assert stops.expected_s(work_s * 1.5, nodes) >= expected_s
    assert stops.expected_s(work_s, nodes + 1) >= expected_s * (1 - 1e-9)
    assume(work_s * rate * nodes < 5 * DAY_S)
    assert never.expected_s(work_s, nodes) >= expected_s * (1 - 1e-9)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"per_day": -1}, "interruptions_per_day=-1"),
        ({"per_day": 1, "restart_s": -1}, "restart"),
        ({"per_day": 1, "every_s": 0}, "checkpoint_every"),
        ({"per_day": float("inf")}, "interruptions_per_day"),
    ],
)
def test_what_is_not_possible_is_named(fields: dict[str, float], name: str) -> None:
    with pytest.raises(JobError, match=name):
        Interruptions(**fields)


def test_a_run_that_would_not_end_is_refused() -> None:
    with pytest.raises(JobError, match="checkpoint more often"):
        Interruptions(per_day=100).expected_s(30 * DAY_S, nodes=8)
