"""What is printed beside a prediction follows from the others alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.measure.profiler.timing import Timing
from predictor.measure.profiler.verify.compare import STEADY, Pair, Verification, compared

SECONDS = st.floats(min_value=1e-4, max_value=10.0)


def pair(network: str, predicted_s: float, measured_s: float, *, aside: bool = False) -> Pair:
    step = Timing(time_s=measured_s, spread=0.0, samples=5)
    return Pair(
        network=network,
        precision="fp32",
        predicted_s=predicted_s,
        measured=step,
        pace=1.0,
        aside=aside,
    )


@given(st.lists(SECONDS, min_size=2, max_size=6), st.floats(0.2, 5.0))
def test_an_error_that_all_share_is_gone_with_the_factor(seconds: list[float], off: float) -> None:
    found = compared([pair(str(i), s, s * off) for i, s in enumerate(seconds)])
    assert all(c.calibrated_error == pytest.approx(0.0, abs=1e-9) for c in found)
    assert all(c.error == pytest.approx(1 / off - 1) for c in found)


@given(SECONDS, SECONDS)
def test_a_network_teaches_nothing_to_its_own_factor(first: float, second: float) -> None:
    others = [pair("b", 1.0, 2.0), pair("c", 1.0, 2.0)]
    factors = [
        c.calibrated_s / c.predicted_s
        for measured_s in (first, second)
        for c in compared([pair("a", 1.0, measured_s), *others])
        if c.network == "a"
    ]
    assert factors == pytest.approx([2.0, 2.0])


def test_networks_set_aside_teach_no_factor_and_are_summed_up_apart() -> None:
    found = compared([pair("a", 1.0, 1.0), pair("b", 1.0, 1.0), pair("late", 1.0, 4.0, aside=True)])
    result = Verification(device="cpu", comparisons=found)
    assert [c.calibrated_s for c in found] == pytest.approx([1.0, 1.0, 1.0])
    guide, aside = result.summary(aside=False), result.summary(aside=True)
    assert guide is not None
    assert aside is not None
    assert (guide.steps, aside.steps) == (2, 1)
    assert guide.mean == pytest.approx(0.0)
    assert aside.mean == pytest.approx(0.75)


def test_a_measurement_whose_steps_disagree_is_named() -> None:
    steady = pair("calm", 1.0, 1.0)
    absurd = Pair(
        network="shared",
        precision="fp32",
        predicted_s=1.0,
        pace=1.0,
        aside=False,
        measured=Timing(time_s=1.0, spread=2 * STEADY, samples=5),
    )
    result = Verification(device="cpu", comparisons=compared([steady, absurd]))
    assert [c.network for c in result.unsteady] == ["shared"]
    assert Verification(device="cpu", comparisons=()).summary() is None
