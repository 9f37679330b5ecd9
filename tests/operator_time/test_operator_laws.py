"""Laws of operator times: more work never takes less time, and units are seconds of a device."""

from __future__ import annotations

import json
import math
import time
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.graphs.operator import Direction, Kind, Operator
from predictor.job.precision import Dtype
from predictor.physics.autocast import TypedOperator
from predictor.physics.operator_time import OperatorTimes
from profiles.gpus import find_gpu, gpus

GPUS = ("v100-sxm2-16gb", "a100-sxm4-80gb", "h100-sxm5-80gb", "rtx4090-24gb")
FORWARD, DATA, WEIGHT = (Direction.FORWARD, Direction.DATA_GRADIENT, Direction.WEIGHT_GRADIENT)
DTYPES = (Dtype.FP32, Dtype.TF32, Dtype.FP16, Dtype.BF16)
MEMORY_BOUND = tuple(
    kind
    for kind in Kind
    if kind not in (Kind.GEMM, Kind.BATCHED_GEMM, Kind.CONV, Kind.ATTENTION, Kind.RNN)
)


def on_tensor_cores(gpu: str, dtype: Dtype) -> bool:
    key = "tf32" if dtype is Dtype.TF32 else f"{dtype.value}_tensor"
    return key in find_gpu(gpu).peak_flops


def matrix(
    gpu: str, kind: Kind, dtype: Dtype, direction: Direction, m: int, n: int, k: int, batch: int
) -> TypedOperator:
    """A matrix operator; a convolution is 1x1, ``batch`` its groups."""
    dims = {
        Kind.GEMM: (m, n, k),
        Kind.BATCHED_GEMM: (m, n, k, batch),
        Kind.CONV: (m, n, k, batch, 1, 1),
    }[kind]
    copies = 1 if kind is Kind.GEMM else batch
    flops = 2.0 * m * n * k * copies
    reads, writes = copies * (m * k + k * n), copies * m * n
    operator = Operator(kind, direction, dims, flops, reads, writes)
    bytes_ = (reads + writes) * dtype.bytes
    return TypedOperator(operator, dtype, bytes_, on_tensor_cores(gpu, dtype))


def stream(kind: Kind, direction: Direction, dtype: Dtype, elements: int) -> TypedOperator:
    operator = Operator(kind, direction, (1, elements), 0.0, elements, elements)
    return TypedOperator(operator, dtype, 2.0 * elements * dtype.bytes, False)


def attention(gpu: str, length: int, heads: int, direction: Direction) -> TypedOperator:
    width = 64
    flops = 4.0 * heads * length * length * width * (1 if direction is FORWARD else 2.5)
    moved = 4.0 * heads * length * width
    dims = (length, length, width, heads)
    operator = Operator(Kind.ATTENTION, direction, dims, flops, moved, 0.0)
    return TypedOperator(operator, Dtype.FP16, 2 * moved, on_tensor_cores(gpu, Dtype.FP16))


def recurrent(gpu: str, steps: int, batch: int, hidden: int, dtype: Dtype) -> TypedOperator:
    flops = 8.0 * steps * batch * hidden * hidden
    dims = (steps, batch, hidden, 4)
    operator = Operator(Kind.RNN, FORWARD, dims, flops, 4.0 * hidden**2, steps * batch * hidden)
    return TypedOperator(operator, dtype, 4.0 * hidden**2, on_tensor_cores(gpu, dtype))


def price(times: OperatorTimes, gpu: str, *operators: TypedOperator) -> list[float]:
    return [float(s) for s in times.seconds(find_gpu(gpu), operators)]


gpu_names = st.sampled_from(GPUS)
dtypes = st.sampled_from(DTYPES)
kinds = st.sampled_from((Kind.GEMM, Kind.BATCHED_GEMM, Kind.CONV))
directions = st.sampled_from((FORWARD, DATA, WEIGHT))
eights = st.integers(1, 1024).map(lambda x: 8 * x)


@given(
    gpu=gpu_names,
    kind=kinds,
    dtype=dtypes,
    direction=directions,
    m=eights,
    n=eights,
    k=eights,
    batch=st.integers(1, 64),
    axis=st.integers(0, 3),
    more=st.integers(1, 64),
)
def test_a_larger_matrix_product_never_takes_less_time(
    times: OperatorTimes,
    gpu: str,
    kind: Kind,
    dtype: Dtype,
    direction: Direction,
    m: int,
    n: int,
    k: int,
    batch: int,
    axis: int,
    more: int,
) -> None:
    small = [m, n, k, batch]
    large = list(small)
    large[axis] += more * (8 if axis < 3 else 1)
    if kind is Kind.CONV and (batch == 1) != (large[3] == 1):
        large[3] = batch  # dense and grouped convolutions are different kernels
    low, high = price(
        times,
        gpu,
        matrix(gpu, kind, dtype, direction, *small),
        matrix(gpu, kind, dtype, direction, *large),
    )
    assert 0 < low <= high * (1 + 1e-9)


@given(
    gpu=gpu_names,
    kind=st.sampled_from(MEMORY_BOUND),
    dtype=dtypes,
    direction=st.sampled_from(tuple(Direction)),
    elements=st.integers(1, 10**9),
    more=st.integers(0, 10**9),
)
def test_more_bytes_never_take_less_time(
    times: OperatorTimes,
    gpu: str,
    kind: Kind,
    dtype: Dtype,
    direction: Direction,
    elements: int,
    more: int,
) -> None:
    low, high = price(
        times,
        gpu,
        stream(kind, direction, dtype, elements),
        stream(kind, direction, dtype, elements + more),
    )
    assert 0 < low <= high


@given(
    gpu=gpu_names,
    length=st.integers(1, 8192),
    heads=st.integers(1, 512),
    more=st.integers(0, 4096),
    direction=st.sampled_from((FORWARD, DATA)),
)
def test_longer_attention_never_takes_less_time(
    times: OperatorTimes, gpu: str, length: int, heads: int, more: int, direction: Direction
) -> None:
    base, longer, wider = price(
        times,
        gpu,
        attention(gpu, length, heads, direction),
        attention(gpu, length + more, heads, direction),
        attention(gpu, length, heads + more, direction),
    )
    assert 0 < base <= longer * (1 + 1e-9)
    assert base <= wider * (1 + 1e-9)


@given(
    gpu=gpu_names,
    steps=st.integers(1, 500),
    batch=st.integers(1, 512),
    hidden=st.integers(16, 4096),
    dtype=dtypes,
    more=st.integers(0, 500),
)
def test_more_recurrent_work_never_takes_less_time(
    times: OperatorTimes, gpu: str, steps: int, batch: int, hidden: int, dtype: Dtype, more: int
) -> None:
    base, *larger = price(
        times,
        gpu,
        recurrent(gpu, steps, batch, hidden, dtype),
        recurrent(gpu, steps + more, batch, hidden, dtype),
        recurrent(gpu, steps, batch + more, hidden, dtype),
        recurrent(gpu, steps, batch, hidden + more, dtype),
    )
    assert base > 0
    assert base <= min(larger)


def test_no_gpu_beats_its_data_sheet_by_more_than_its_boost_clock(times: OperatorTimes) -> None:
    """Workstation cards such as the RTX 3090 measure up to a tenth above the listed boost."""
    for (name, gpu), dtype in product(gpus().items(), DTYPES):
        multiplied = matrix(name, Kind.GEMM, dtype, FORWARD, 8192, 8192, 8192, 1)
        (seconds,) = price(times, name, multiplied)
        peak = max(gpu.peak_flops.values())
        assert multiplied.operator.flops / seconds < 1.1 * peak, (name, dtype)


def test_a_large_product_runs_faster_on_tensor_cores_than_off(times: OperatorTimes) -> None:
    half = matrix("v100-sxm2-16gb", Kind.GEMM, Dtype.FP16, FORWARD, 4096, 4096, 4096, 1)
    full = matrix("v100-sxm2-16gb", Kind.GEMM, Dtype.FP32, FORWARD, 4096, 4096, 4096, 1)
    seconds = price(times, "v100-sxm2-16gb", half, full)
    assert 4 < seconds[1] / seconds[0] < 8


def test_volta_emulates_bf16_no_faster_than_fp32(times: OperatorTimes) -> None:
    bf16 = matrix("v100-sxm2-16gb", Kind.GEMM, Dtype.BF16, FORWARD, 4096, 4096, 4096, 1)
    fp32 = matrix("v100-sxm2-16gb", Kind.GEMM, Dtype.FP32, FORWARD, 4096, 4096, 4096, 1)
    seconds = price(times, "v100-sxm2-16gb", bf16, fp32)
    assert seconds[0] == pytest.approx(seconds[1], rel=0.02)


def test_tensor_core_convolutions_pay_for_channels_filled_up_to_eight(times: OperatorTimes) -> None:
    gpu = "v100-sxm2-16gb"
    seconds = price(
        times,
        gpu,
        *(matrix(gpu, Kind.CONV, Dtype.FP16, FORWARD, 50176, n, 512, 1) for n in (505, 512)),
    )
    assert seconds[0] == pytest.approx(seconds[1], rel=0.02)


def test_a_strided_data_gradient_pays_for_the_taps_it_has(times: OperatorTimes) -> None:
    m, n, k = 50176, 256, 256 * 9
    dense, strided = (
        Operator(Kind.CONV, DATA, (m, n, k, 1, 9, s), 2.0 * m * n * k / s, m * n, m * k / 9)
        for s in (1, 4)
    )
    half = (TypedOperator(o, Dtype.FP16, 2 * (o.reads + o.writes), True) for o in (dense, strided))
    seconds = price(times, "v100-sxm2-16gb", *half)
    assert seconds[1] < 0.7 * seconds[0]


@pytest.mark.parametrize("gpu", GPUS)
def test_a_kernel_of_next_to_nothing_takes_microseconds(times: OperatorTimes, gpu: str) -> None:
    small = [
        stream(kind, direction, dtype, 1)
        for kind in MEMORY_BOUND
        for direction in (FORWARD, DATA)
        for dtype in (Dtype.FP32, Dtype.FP16)
    ]
    small += [
        matrix(gpu, k, d, FORWARD, 8, 8, 8, 1) for k in (Kind.GEMM, Kind.CONV) for d in DTYPES
    ]
    seconds = np.array(price(times, gpu, *small))
    assert (seconds > 5e-7).all()
    assert (seconds < 3e-5).all()


def test_no_operators_cost_nothing(times: OperatorTimes) -> None:
    assert len(times.seconds(find_gpu("a100"), [])) == 0


def test_each_operator_is_priced_alone(times: OperatorTimes) -> None:
    mixed = [
        matrix("a100", Kind.CONV, Dtype.FP16, DATA, 4096, 64, 576, 1),
        stream(Kind.SOFTMAX, DATA, Dtype.FP32, 10**7),
        attention("a100", 1024, 64, FORWARD),
        recurrent("a100", 50, 64, 1024, Dtype.FP16),
    ]
    together = price(times, "a100", *mixed)
    assert together == pytest.approx([price(times, "a100", one)[0] for one in mixed])


def test_constants_survive_a_round_trip_through_json(times: OperatorTimes) -> None:
    again = OperatorTimes.from_arrays(json.loads(json.dumps(times.to_arrays())))
    operators = [
        matrix("v100", kind, dtype, FORWARD, 512, 512, 512, 4)
        for kind in (Kind.GEMM, Kind.CONV)
        for dtype in DTYPES
    ]
    assert price(again, "v100", *operators) == price(times, "v100", *operators)


def test_three_hundred_operators_cost_little_more_than_two(times: OperatorTimes) -> None:
    operators = [
        matrix("a100", Kind.CONV, Dtype.FP16, FORWARD, 8 * i + 8, 64, 576, 1) for i in range(150)
    ] + [stream(Kind.BATCH_NORM, FORWARD, Dtype.FP16, 1000 * i + 1) for i in range(150)]
    gpu = find_gpu("a100")

    def least_s(priced: list[Operator]) -> float:
        runs = []
        for _ in range(5):
            start = time.process_time()
            times.seconds(gpu, priced)
            runs.append(time.process_time() - start)
        return min(runs)

    assert least_s(operators) < 30 * least_s([operators[0], operators[-1]])
    assert math.isfinite(float(np.sum(times.seconds(gpu, operators))))
