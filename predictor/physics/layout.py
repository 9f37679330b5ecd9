"""Tensor layout of convolutions: what it costs to bring channels last for the tensor cores.

Tensor-core kernels of cuDNN read and write activations with channels last (NHWC). A network whose
tensors have channels first (NCHW) pays two copies around every such kernel, its inputs before
and its output after: each activation is read and written once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..graphs.operator import Direction, Kind, Operator
from ..job.precision import Dtype
from .autocast import TypedOperator

# Grouped convolutions with channels last run on tensor cores for these channels of a group, and for
# multiples of these groups and channels; others are 5 to 15 times slower (pytorch-image-models,
# channels last against first, cuDNN 8.3).
WIDTHS = frozenset({4, 8, 16, 32})
GROUPS = 8
CHANNELS = 64


def transposes(typed: Sequence[TypedOperator]) -> list[TypedOperator]:
    """The copies around tensor-core convolutions of a network with channels first.

    One operator per pass and format, with the bytes and kernels of all of them: cuDNN launches
    them inside its own call.
    """
    moved: dict[tuple[Direction, Dtype], list[float]] = {}
    for item in typed:
        operator = item.operator
        if not item.tensor_core or operator.kind is not Kind.CONV or depthwise(operator):
            continue
        total = moved.setdefault((operator.direction, item.dtype), [0.0, 0.0])
        elements = operator.reads + operator.writes - _weights(operator)
        total[0] += elements * operator.count
        total[1] += 2.0 * operator.count
    return [
        TypedOperator(
            Operator(Kind.CAST, direction, (1, int(elements)), 0.0, elements, elements, kernels),
            dtype,
            2 * elements * dtype.bytes,
            False,
        )
        for (direction, dtype), (elements, kernels) in moved.items()
    ]


def off_tensor_cores(typed: Sequence[TypedOperator]) -> Iterator[TypedOperator]:
    """The operators of a network with channels last: some grouped convolutions have no kernel."""
    for item in typed:
        yield replace(item, tensor_core=False) if item.tensor_core and _slow(item) else item


def _slow(item: TypedOperator) -> bool:
    operator = item.operator
    if operator.kind is not Kind.CONV or operator.dims[3] == 1:
        return False
    m, n, k, groups, volume = operator.dims[:5]
    width = (m if operator.direction is Direction.WEIGHT_GRADIENT else k) // volume
    whole = width == n and groups % GROUPS == 0 and width * groups % CHANNELS == 0
    return not (whole and width in WIDTHS)


def depthwise(operator: Operator) -> bool:
    """Whether every group of a convolution has one input channel."""
    m, _, k, groups, volume = operator.dims[:5]
    return groups > 1 and (m if operator.direction is Direction.WEIGHT_GRADIENT else k) <= volume


def _weights(operator: Operator) -> float:
    m, n, k = operator.dims[:3]
    return float(m * n if operator.direction is Direction.WEIGHT_GRADIENT else n * k)
