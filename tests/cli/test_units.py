"""Numbers as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.units import count, duration, percent, short, span


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (3.4e-4, "340 us"),
        (0.0852, "85.2 ms"),
        (0.99999, "1.00 s"),
        (12.34, "12.3 s"),
        (59.99, "60.0 s"),
        (60.2, "1 min 00 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 00 min"),
        (11_100, "3 h 05 min"),
        (273_900, "76 h 05 min"),
        (3_599_000, "999 h 43 min"),
        (3_600_000, "1,000 h"),
        (80_419_461_720, "22,338,739 h"),
        (None, "-"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@given(st.floats(1e-6, 1e9))
def test_a_short_number_keeps_its_value_however_small_it_is(value: float) -> None:
    """The GPU-hours of a minute are not 0.00."""
    assert "e" not in short(value)
    assert float(short(value).replace(",", "")) == pytest.approx(value, rel=0.051)
    if value >= 1:
        assert float(short(value).replace(",", "")) == pytest.approx(value, rel=0.0051)


def test_what_is_missing_is_a_dash() -> None:
    assert (percent(None), percent(float("nan")), count(None)) == ("-", "-", "-")
    assert (percent(0.1234), count(1234567)) == ("12.3 %", "1,234,567")


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (1.23, 4.56, "1.2 s .. 4.6 s"),  # half as wide as it is long: a third digit says nothing
        (0.118, 0.156, "118 ms .. 156 ms"),
        (0.0905, 0.298, "90 ms .. 300 ms"),
        (2748, 11_280, "46 min .. 3 h 10 min"),
        (6660, 8760, "1 h 51 min .. 2 h 26 min"),
        (360_000, 1_080_000, "100 h .. 300 h"),
        (10.0, 10.0, "10.0 s .. 10.0 s"),
        (0.0, 5.0, "0 s .. 5.0 s"),
    ],
)
def test_the_ends_of_a_range_have_the_digits_that_its_width_carries(
    low: float, high: float, text: str
) -> None:
    assert span(low, high) == text


def test_ranges_of_numbers_are_rounded_alike() -> None:
    assert span(11.31, 37.34, short) == "11 .. 37"
    assert span(1234.56, 2345.67, short) == "1,200 .. 2,300"


@given(st.floats(1e-5, 1e7), st.floats(1.0, 100.0))
def test_an_end_is_moved_by_a_twentieth_at_most(low: float, times: float) -> None:
    low_text, high_text = span(low, low * times, short).split(" .. ")
    for text, value in ((low_text, low), (high_text, low * times)):
        assert float(text.replace(",", "")) == pytest.approx(value, rel=0.051, abs=0.00501)
