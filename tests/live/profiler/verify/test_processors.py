"""Times of a CPU come from its own rows, rows of like shape first."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.graphs.operator import Direction, Kind, Operator
from predictor.job.precision import Dtype
from predictor.physics.autocast import TypedOperator
from predictor.physics.operator_time.neighbours import Neighbours, interpolated
from predictor.physics.operator_time.processors import PARTS, Cell, cell_of, codes
from predictor.physics.operator_time.samples import samples_of
from predictor.physics.operator_time.work import (
    CLASS_OF,
    FUNCTIONS,
    MATH,
    PLAIN,
    RANDOM,
    Engines,
    function_number,
    work_of,
)
from profiles.gpus import CPU, find_gpu
from profiles.tables import operators, take

ANY_CELL = st.builds(
    Cell, st.sampled_from(Kind), st.sampled_from(Direction), st.sampled_from(Dtype)
)


def bent(x: np.ndarray) -> np.ndarray:
    """A curve with a kink, as a cache makes one."""
    return np.where(x < 5.0, 0.0, 0.3 * (x - 5.0))


def test_rows_left_out_are_told_better_with_the_correction_than_without() -> None:
    x = np.linspace(0.0, 10.0, 41)
    points = np.column_stack((np.zeros_like(x), x))
    kept = np.arange(len(x)) % 4 != 0
    near = interpolated(points[kept], bent(x[kept]))
    left_out = bent(x[~kept])
    assert np.abs(near.at(points[~kept]) - left_out).max() < 0.3 * np.abs(left_out).max()


def test_one_row_that_lies_does_not_bend_the_correction() -> None:
    x = np.linspace(0.0, 10.0, 40)
    points, values = np.column_stack((np.zeros_like(x), x)), np.zeros(40)
    values[20] = 3.0
    near = interpolated(points, values)
    assert abs(near.at(np.array([[0.0, x[20]]]))[0]) < 1.0


def test_far_from_every_row_nothing_is_corrected() -> None:
    points = np.array([[0.0, 1.0], [0.0, 1.5], [0.0, 2.0]])
    near = interpolated(points, np.array([0.5, 0.5, 0.5]))
    assert near.at(np.array([[0.0, 500.0]]))[0] == pytest.approx(0.0, abs=1e-6)
    assert near.at(np.zeros((0, 2))).shape == (0,)


def test_a_correction_survives_storage() -> None:
    points = np.array([[0.0, 1.0], [1.0, 1.5], [0.0, 2.0]])
    near = interpolated(points, np.array([0.1, 0.4, -0.2]))
    again = Neighbours.from_dict(near.to_dict())
    assert np.array_equal(near.at(points), again.at(points))


@given(ANY_CELL)
def test_a_cell_without_rows_ends_at_one_that_others_stand_in_for(cell: Cell) -> None:
    """An update is priced as a forward operator, as ``codes`` tells it."""
    names = [one.name for one in cell.stand_ins]
    assert cell.direction is Direction.UPDATE or names[0] == cell.name
    assert len(names) == len(set(names))


@given(st.integers(0, 10_000))
def test_a_cell_is_settings_of_its_number(code: int) -> None:
    limit = len(Kind) * len(Direction) * len(Dtype) * len(PARTS)
    assert isinstance(cell_of(code % limit), Cell)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gelu", MATH),
        ("gelu_backward", MATH),
        ("relu_", PLAIN),
        ("threshold_backward", PLAIN),
        ("native_dropout", RANDOM),
        ("bernoulli_", RANDOM),
        ("_to_copy", PLAIN),
        ("unheard_of", PLAIN),
    ],
)
def test_functions_are_settings_of_the_names_of_torch(name: str, expected: int) -> None:
    assert CLASS_OF[function_number(name)] == expected


def test_the_gradient_of_dropout_draws_nothing() -> None:
    assert FUNCTIONS[function_number("dropout", backward=True)] == "mul"


def coded(operator: Operator, dtype: Dtype = Dtype.BF16) -> str:
    cpu = replace(find_gpu("v100-sxm2-16gb"), kind=CPU)
    work = work_of(Engines(cpu), [TypedOperator(operator, dtype, 1.0, False)])
    return cell_of(int(codes(work)[0])).name


@pytest.mark.parametrize(("stride", "words"), [(1, "depthwise"), (4, "strided depthwise")])
def test_a_strided_depthwise_data_gradient_has_a_cell_of_its_own(stride: int, words: str) -> None:
    dims = (4096, 1, 9, 96, 9, stride)
    gradient = Operator(Kind.CONV, Direction.DATA_GRADIENT, dims, 1.0, 1.0, 1.0)
    forward = Operator(Kind.CONV, Direction.FORWARD, dims, 1.0, 1.0, 1.0)
    assert coded(gradient) == f"conv/data_gradient/bf16/{words}"
    assert coded(forward) == "conv/forward/bf16/depthwise"


def test_the_largest_of_a_window_is_told_from_its_average() -> None:
    average = Operator(Kind.POOL, Direction.FORWARD, (16, 64), 0.0, 1.0, 1.0)
    assert coded(average) == "pool/forward/bf16"
    assert coded(replace(average, function="max_pool")) == "pool/forward/bf16/largest"


def test_rows_of_a_depthwise_data_gradient_are_priced_and_those_of_an_image_are_not() -> None:
    shipped = operators()
    table = take(
        shipped, np.flatnonzero((shipped.op == "conv2d") & (shipped.direction == "fwd"))[:2]
    )
    sizes = {"in_c": [96.0, 3.0], "out_c": [96.0, 64.0], "groups": [96.0, 1.0]}
    columns = {name: np.array(values) for name, values in sizes.items()}
    both = replace(table, **columns, direction=np.array(["bwd_data"] * 2))
    cpu = replace(find_gpu(str(both.gpu[0])), kind=CPU)
    with patch("predictor.physics.operator_time.samples.find_gpu", return_value=cpu):
        work = samples_of(both, {cpu.name: cpu}).work
    assert work.dims[:, 3].tolist() == [96.0]


def test_a_root_of_a_list_is_a_root() -> None:
    assert FUNCTIONS[function_number("foreach_sqrt")] == "sqrt"
    assert FUNCTIONS[function_number("_foreach_add_")] == "foreach"
    assert FUNCTIONS[function_number("_fused_adamw_")] == "fused"
