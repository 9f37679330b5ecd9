"""BLAS has one thread while somebody solves small systems, and what it had before afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from predictor.estimate.residual.process import one_thread


def threads() -> int:
    """Threads of the BLAS of numpy."""
    np.linalg.solve(np.eye(2), np.ones(2))
    return max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")


@pytest.fixture(autouse=True)
def two() -> Iterator[None]:
    with threadpool_limits(2, user_api="blas"):
        yield


def test_inside_there_is_one_and_outside_what_was_there() -> None:
    with one_thread():
        assert threads() == 1
        with one_thread():
            assert threads() == 1
        assert threads() == 1
    assert threads() == 2


def test_it_ends_with_an_exception_too() -> None:
    with pytest.raises(ValueError, match="inside"), one_thread():
        raise ValueError("inside")
    assert threads() == 2
