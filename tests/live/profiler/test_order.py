"""What is measured first: everything once, then what well-known networks spend their time on."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.measure.profiler.case import CALLS, Axis, Case, CaseLimits, Shape, roofline_s
from predictor.measure.profiler.families import BY_NAME, FAMILIES, formats_of
from predictor.measure.profiler.order import ordered, popular
from profiles.gpus import find_gpu

GPU = find_gpu("h200-sxm-141gb")
FORMATS = ("fp32", "tf32", "fp16", "bf16")
LIMITS = CaseLimits.of(GPU, 20.0)
ROUND = sum(f.turns for f in FAMILIES for _ in formats_of(f, FORMATS))


def first(count: int, limits: CaseLimits = LIMITS) -> list[Case]:
    """The first cases, with the shapes of networks."""
    return list(islice(ordered(limits, FORMATS, lambda: popular(GPU, FORMATS)), count))


def test_the_first_round_has_every_family_in_every_format() -> None:
    seen = {(case.family, case.dtype) for case in first(ROUND)}
    assert seen == {(f.name, dtype) for f in FAMILIES for dtype in formats_of(f, FORMATS)}


def test_a_run_that_ends_in_the_first_round_asks_for_no_networks() -> None:
    def never() -> dict[tuple[str, str], list[Shape]]:
        pytest.fail("asked")

    assert len(list(islice(ordered(LIMITS, FORMATS, never), ROUND))) == ROUND


def test_no_case_comes_twice_and_the_order_is_always_the_same() -> None:
    cases = first(4 * ROUND)
    assert len({case.id(GPU.name, "fwd") for case in cases}) == len(cases)
    assert cases == first(4 * ROUND)


def test_a_shorter_run_takes_smaller_cases() -> None:
    short = CaseLimits.of(GPU, 0.5)
    for case in first(ROUND, short):
        row = case.row(GPU.name, "fwd", 1.0)
        seconds = roofline_s(GPU, case.op, case.dtype, float(row.flops[0]), float(row.bytes[0]))
        assert seconds * CALLS < short.row_s < LIMITS.row_s


def test_shapes_of_networks_come_in_falling_share_of_their_steps() -> None:
    shapes = popular(GPU, ("fp32",))
    assert {"gemm", "conv", "depthwise conv", "attention", "pointwise"} <= {k for k, _ in shapes}
    # The largest product of all: the scores of a language model over its vocabulary.
    largest = shapes["gemm", "fp32"][0].sizes
    assert largest["n"] > 10_000
    stem = {"in_c": 3, "in_h": 224, "out_c": 64, "kernel_h": 7, "stride_h": 2, "pad_h": 3}
    convs = [shape.sizes for shape in shapes["conv", "fp32"]]
    assert any(all(sizes[k] == v for k, v in stem.items()) for sizes in convs)


def test_networks_come_in_second_place() -> None:
    gemms = [case for case in first(3 * ROUND) if (case.family, case.dtype) == ("gemm", "fp16")]
    known = {str(shape) for shape in popular(GPU, FORMATS)["gemm", "fp16"]}
    turns = BY_NAME["gemm"].turns
    assert not any(str(case.shape) in known for case in gemms[:turns])
    assert any(str(case.shape) in known for case in gemms[turns:])


@given(st.integers(1, 1000), st.integers(1, 1000), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_an_axis_keeps_its_bounds_and_its_order(low: int, more: int, a: float, b: float) -> None:
    axis = Axis("n", (low, low * more), (low, low * more))
    small, large = sorted((axis.at(a, True), axis.at(b, True)))
    assert axis.at(min(a, b), True) == small
    assert low <= small or small % axis.step == 0
    assert large <= low * more + axis.step
    assert large < axis.step or large % axis.step == 0
