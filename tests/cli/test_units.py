"""Numbers as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.units import count, duration, percent, short


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
def test_a_short_number_keeps_its_value_to_one_percent(value: float) -> None:
    assert "e" not in short(value)
    assert float(short(value).replace(",", "")) == pytest.approx(value, rel=0.01, abs=0.00501)


def test_what_is_missing_is_a_dash() -> None:
    assert (percent(None), percent(float("nan")), count(None)) == ("-", "-", "-")
    assert (percent(0.1234), count(1234567)) == ("12.3 %", "1,234,567")
