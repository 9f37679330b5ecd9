"""Products under autocast: what comes in is cast where it is FP32, what they hold stays low."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from autocast_runs import SIDE, Behind, Function, Ran, step_on_cpu, typed  # noqa: E402

from predictor.graphs.operator import Direction, Kind  # noqa: E402
from predictor.job.precision import Dtype  # noqa: E402
from predictor.physics.autocast import TypedOperator  # noqa: E402

F = torch.nn.functional


def _turned(x: object, w: object) -> object:
    """A linear layer over what is not contiguous: torch takes it apart, and adds the bias last."""
    return F.linear((x * w).view(1, SIDE, SIDE).transpose(1, 2), w, w[0])  # type: ignore[index, operator]


# How many products have an FP32 input that the network computed.
ENTERED = {
    "low": (lambda x, w: F.linear(F.relu(x), w), 0),
    "fp32": (lambda x, w: F.linear(x * w, w), 1),
    "twice": (lambda x, w: F.linear(x * w, w) + F.linear(x + w, w), 2),
    "after a product": (lambda x, w: F.linear(F.linear(x * w, w), w), 1),
    "turned": (_turned, 1),
    "matmul": (lambda x, w: torch.matmul((x * w).view(1, SIDE, SIDE).transpose(1, 2), w), 1),
}
STORED = 3  # what torch casts beside: the input of the network and two weights
each = pytest.mark.parametrize(("function", "count"), ENTERED.values(), ids=ENTERED)


def casts(function: Function, device: str, direction: Direction) -> list[TypedOperator]:
    every = typed(Behind(function), device)
    return [t for t in every if t.operator.kind is Kind.CAST and t.operator.direction is direction]


def lowering(function: Function, *, backward: bool) -> list[Ran]:
    """The casts to the lower format that torch runs on a CPU."""
    ran = step_on_cpu(Behind(function))[1]
    return [
        r for r in ran if r.name == "_to_copy" and r.output is Dtype.BF16 and r.backward is backward
    ]


@each
def test_an_fp32_input_of_a_product_is_cast_as_torch_casts_it(
    function: Function, count: int
) -> None:
    bias = function is _turned
    assert len(lowering(function, backward=False)) == STORED + bias + count
    found = casts(function, "cpu", Direction.FORWARD)
    assert [t.bytes for t in found] == [SIDE * SIDE * (4 + 2)] * count


@each
def test_its_gradient_is_cast_back(function: Function, count: int) -> None:
    assert len(casts(function, "cpu", Direction.DATA_GRADIENT)) == count


@each
def test_on_a_gpu_it_is_cast_where_code_is_eager(function: Function, count: int) -> None:
    assert not casts(function, "cuda", Direction.FORWARD)
    eager = typed(Behind(function), "cuda", one_by_one=True)
    assert sum(t.operator.kind is Kind.CAST for t in eager) == 2 * count  # both ways


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_bias_within_a_product_keeps_the_lower_format(device: str) -> None:
    every = typed(Behind(_turned), device)
    last = max(i for i, t in enumerate(every) if t.operator.kind is Kind.GEMM)
    bias = [t for t in every[last:] if t.operator.function.startswith("add")]
    assert [t.dtype for t in bias] == [Dtype.BF16]
    assert step_on_cpu(Behind(_turned))[0] is Dtype.BF16
