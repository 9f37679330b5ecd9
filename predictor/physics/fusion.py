"""Fusion of pointwise work into the kernel that makes its input.

A fused operator finds its input in registers and keeps its result there for the next one, so of its
traffic one read and one write of the output's size fall away. XLA and torch.compile fuse whatever
is bound by memory; OneFlow and NVIDIA's MXNet have kernels of batch norm, addition and ReLU in one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..graphs.operator import Direction, Kind
from ..job.training_job import TrainingJob
from .autocast import TypedOperator

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
