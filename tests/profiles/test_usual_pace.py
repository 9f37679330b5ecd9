"""Rows of a CPU are taken at the pace that was usual; nobody else's are touched."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.tables import at_usual_pace, operators, usual_pace

PACES = st.lists(st.floats(0.3, 3.0).map(lambda x: round(x, 3)), min_size=1, max_size=9)


def noted(paces: list[float]) -> list[str]:
    return [f"spread=0.010;samples=9;pace={pace:.3f}" for pace in paces]


@given(PACES)
def test_the_usual_pace_is_the_median_of_the_rows(paces: list[float]) -> None:
    assert usual_pace(noted(paces)) == pytest.approx(np.median(paces))


def test_rows_that_state_no_pace_stay_as_they_are() -> None:
    assert usual_pace(["", "spread=0.1", "space=2.0"]) == 1.0


def test_each_cpu_has_a_usual_pace_of_its_own_and_a_gpu_none() -> None:
    devices = np.array(["cpu-a", "cpu-a", "cpu-b", "v100-pcie-16gb"])
    times = at_usual_pace(devices, noted([0.5, 0.5, 2.0, 4.0]), np.ones(4))
    assert times.tolist() == [2.0, 2.0, 0.5, 1.0]


def test_shipped_rows_have_no_pace() -> None:
    table = operators()
    assert not any(str(name).startswith("cpu-") for name in np.unique(table.gpu))
