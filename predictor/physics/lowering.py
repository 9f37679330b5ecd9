"""What a framework makes of typed operators before the device sees them: layouts, fusion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from profiles.gpus import CPU

from ..graphs.operator import Direction, Kind, Operator
from ..job.precision import Dtype
from ..job.training_job import TrainingJob
from .autocast import TypedOperator


def lowered(job: TrainingJob, typed: tuple[TypedOperator, ...]) -> tuple[TypedOperator, ...]:
    """The operators as the device runs them under the framework and options of a job."""
    if job.hardware.kind == CPU:
        return typed  # layouts are part of what tables of a CPU time
    if not job.software.channels_last:
        typed = (*typed, *transposes(typed))
    elif job.precision.activation_dtype.bytes == 2:
        typed = tuple(off_tensor_cores(typed))
    return tuple(fused(typed)) if fuses(job) else typed


# What a pointwise operator can be fused into.
HOSTS = frozenset(
    {
        Kind.ELEMENTWISE,
        Kind.BATCH_NORM,
        Kind.INSTANCE_NORM,
        Kind.GROUP_NORM,
        Kind.LAYER_NORM,
        Kind.SOFTMAX,
    }
)


def fuses(job: TrainingJob) -> bool:
    """Whether the framework of a job, or a compiler it asks for, fuses pointwise operators."""
    return job.software.compiled or job.software.fused_kernels


def fused(typed: Sequence[TypedOperator]) -> Iterator[TypedOperator]:
    """The same operators, in the same order, with the traffic that fusion leaves.

    A pointwise operator is fused where the forward operator before it is bound by memory; its
    gradient is fused with it.
    """
    behind = inside = False
    for item in typed:
        operator = item.operator
        if operator.kind is Kind.CAST and operator.function:
            yield replace(item, bytes=0.0)  # of autocast: a part of the function it is made for
            continue
        if operator.direction is Direction.FORWARD:
            inside = behind and operator.kind is Kind.ELEMENTWISE
            behind = operator.kind in HOSTS
        if not inside or operator.kind is not Kind.ELEMENTWISE:
            yield item
            continue
        elements = float(operator.dims[0] * operator.dims[1])
        left = max(0.0, operator.reads - elements) + max(0.0, operator.writes - elements)
        yield replace(item, bytes=left * item.dtype.bytes)


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
