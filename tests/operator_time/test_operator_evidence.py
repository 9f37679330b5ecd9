"""What a price rests on: the GPU's own table, that of another GPU, or a like operator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from predictor.graphs.operator import Direction, Kind, Operator
from predictor.job.precision import Dtype
from predictor.physics.autocast import TypedOperator
from predictor.physics.operator_time import OperatorTimes
from predictor.physics.operator_time.fit import POOLED, FittedOperators
from predictor.physics.operator_time.groups import slots
from predictor.physics.operator_time.model import EFFICIENCY, HALF_RATE_TABLE, MISALIGNMENT
from predictor.physics.operator_time.samples import silicon_of
from profiles.gpus import Gpu, find_gpu, gpus
from profiles.tables import operators, take

CONV = Operator(Kind.CONV, Direction.FORWARD, (50176, 64, 576, 1, 9, 1), 3.7e9, 4e6, 3.2e6)
GEMM = Operator(Kind.GEMM, Direction.FORWARD, (4096, 4096, 4096), 1.37e11, 3.3e7, 1.7e7)
DEPTHWISE = Operator(Kind.CONV, Direction.FORWARD, (50176, 1, 9, 256, 9, 1), 2.3e8, 1.3e7, 1.3e7)


def typed(operator: Operator, dtype: Dtype, tensor_core: bool = True) -> TypedOperator:
    bytes_ = (operator.reads + operator.writes) * dtype.bytes
    return TypedOperator(operator, dtype, bytes_, tensor_core)


def taught_by(times: OperatorTimes, gpu: Gpu, operator: TypedOperator) -> list[FittedOperators]:
    """Of what was fitted, whose constants price the operator on the GPU."""
    (slot,) = slots(times.work(gpu, [operator]))
    constants = times.constants(gpu)[slot]
    same = (np.array_equal(f.constants, constants[: len(f.constants)]) for f in times.fitted)
    return [one for one, alike in zip(times.fitted, same, strict=True) if alike]


def test_a_gpu_with_rows_has_its_own_table(times: OperatorTimes) -> None:
    gpu = find_gpu("a100-sxm4-80gb")
    (own,) = taught_by(times, gpu, typed(GEMM, Dtype.BF16))
    assert own.group == "gemm/half"
    assert gpu.name in own.gpus


def test_a100_convolutions_are_carried_over_from_the_same_format(times: OperatorTimes) -> None:
    fitted = {(one.group, one.architecture): one.constants for one in times.fitted}
    gpu = find_gpu("a100-sxm4-80gb")
    for dtype in (Dtype.FP16, Dtype.TF32):
        operator = typed(CONV, dtype)
        assert not taught_by(times, gpu, operator)  # moved by what products reach on it
        (slot,) = slots(times.work(gpu, [operator]))
        carried = times.constants(gpu)[slot] == fitted["conv/half", POOLED]
        assert np.flatnonzero(~carried).tolist() == [EFFICIENCY, MISALIGNMENT]


@pytest.mark.slow
def test_tensor_core_convolutions_never_learn_from_fp32_rows() -> None:
    table = operators()
    slow = take(table, np.arange(len(table)))
    fp32_convolution = (slow.op == "conv2d") & (slow.dtype == "fp32")
    slow.time_s[fp32_convolution] *= 10
    before = OperatorTimes.fit(table, gpus())
    after = OperatorTimes.fit(slow, gpus())
    gpu = find_gpu("a100-sxm4-80gb")
    half, full = typed(CONV, Dtype.FP16), typed(CONV, Dtype.FP32, tensor_core=False)
    assert after.seconds(gpu, [half])[0] == pytest.approx(before.seconds(gpu, [half])[0], rel=0.02)
    assert after.seconds(gpu, [full])[0] > 3 * before.seconds(gpu, [full])[0]


def test_every_kind_has_a_price_on_every_gpu(times: OperatorTimes) -> None:
    shape = (64, 64, 64, 1, 1, 1)
    some = [
        typed(Operator(kind, direction, shape, 5e5, 1e5, 1e5), dtype, tensor_core)
        for kind in Kind
        for direction in Direction
        for dtype in Dtype
        for tensor_core in (True, False)
    ]
    for gpu in gpus().values():
        seconds = times.seconds(gpu, some)
        assert np.all(np.isfinite(seconds))
        assert np.all(seconds > 0)


def test_depthwise_convolution_is_priced_by_its_traffic(times: OperatorTimes) -> None:
    gpu = find_gpu("a100-sxm4-80gb")
    operator = typed(DEPTHWISE, Dtype.FP16)
    at_full_bandwidth = operator.bytes / gpu.bandwidth_bytes_per_s
    (seconds,) = times.seconds(gpu, [operator])
    assert at_full_bandwidth < seconds < 8 * at_full_bandwidth


def test_a_depthwise_convolution_in_fp32_computes_at_half_the_rate(times: OperatorTimes) -> None:
    gpu = find_gpu("v100-sxm2-32gb")
    busy = replace(DEPTHWISE, reads=1e5, writes=1e5)  # bound by its arithmetic
    half, full = times.seconds(gpu, [typed(busy, Dtype.FP16), typed(busy, Dtype.FP32)])
    assert full == pytest.approx(2 * half, rel=0.1)


@pytest.mark.parametrize(
    ("starved", "fed"), [("t4-16gb", "titanrtx-24gb"), ("l4-24gb", "rtx4090-24gb")]
)
def test_a_card_short_of_power_teaches_none_that_has_it(starved: str, fed: str) -> None:
    assert silicon_of(find_gpu(starved)) != silicon_of(find_gpu(fed))
    table = operators()
    rows = (table.op == "gemm") & (table.dtype == "fp32") & np.isin(table.gpu, [starved, fed])
    times = OperatorTimes.fit(take(table, np.flatnonzero(rows)), gpus())
    product = typed(GEMM, Dtype.FP32, tensor_core=False)
    for gpu in {starved, fed} & set(table.gpu):
        assert [one.gpus for one in taught_by(times, find_gpu(gpu), product)] == [(gpu,)]


@pytest.fixture(scope="module")
def products() -> OperatorTimes:
    """Fitted to products and convolutions in 16 bits alone."""
    table = operators()
    rows = np.isin(table.op, ["gemm", "conv2d"]) & np.isin(table.dtype, ["fp16", "bf16"])
    return OperatorTimes.fit(take(table, np.flatnonzero(rows)), gpus())


@pytest.mark.parametrize("full", ["rtxa6000-48gb", "l40s-48gb"])
@pytest.mark.parametrize("half", ["rtx3090-24gb", "rtx4090-24gb", "rtx5090-32gb"])
def test_a_peak_at_half_rate_is_reached_further(
    products: OperatorTimes, half: str, full: str
) -> None:
    for operator in (GEMM, CONV):
        seconds = [
            products.seconds(find_gpu(g), [typed(operator, Dtype.FP16)])[0] for g in (half, full)
        ]
        peaks = [find_gpu(gpu).peak_flops["fp16_tensor"] for gpu in (half, full)]
        assert seconds[0] * peaks[0] < 0.95 * seconds[1] * peaks[1]


def test_cards_at_half_rate_share_their_products_and_nobody_else_does(
    products: OperatorTimes,
) -> None:
    product = typed(GEMM, Dtype.FP16)
    (shared,) = taught_by(products, find_gpu("rtx4090-24gb"), product)
    assert shared.architecture == HALF_RATE_TABLE
    (own,) = taught_by(products, find_gpu("rtxa6000-48gb"), product)
    assert own.architecture == POOLED
