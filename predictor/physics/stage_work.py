"""Device and host work of a micro-step, by where in the network it is done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from ..graphs.operator import Direction, Graph, Kind
from ..graphs.parts import parts_of
from .autocast import TypedOperator
from .operator_time.work import Floats

MATMUL = frozenset({Kind.GEMM, Kind.BATCHED_GEMM, Kind.CONV, Kind.ATTENTION})
CORES = frozenset({Kind.BATCHED_GEMM, Kind.ATTENTION})
START, BODY, END = range(3)


class Class(IntEnum):
    """What a device is busy with."""

    MEMORY = 0
    RECURRENT = 1
    MATMUL = 2
    TENSOR_CORE = 3


@dataclass(frozen=True, slots=True)
class StageWork:
    """One micro-step of a whole network: arrays (n,) over its typed operators.

    ``place`` says whether an operator stands before, in or behind the repeated layers, ``times``
    how often it runs, recomputation included, ``seconds`` what the device needs for all of them.
    ``host_s`` (seconds of the host), ``flops`` and ``bytes`` are of all of them, too; ``kind`` is a
    Class. ``core`` marks products of activations or fused attention, ``weight`` gradients of
    weights.
    """

    place: NDArray[np.intp]
    kind: NDArray[np.intp]
    forward: NDArray[np.bool_]
    core: NDArray[np.bool_]
    weight: NDArray[np.bool_]
    once: Floats
    times: Floats
    seconds: Floats
    host_s: Floats
    flops: Floats
    bytes: Floats

    def of_stage(self, amounts: Floats, shares: Floats) -> float:
        """Sum of ``amounts`` (n,) over a stage with ``shares`` (3,) of start, layers and end."""
        return float(amounts @ shares[self.place])

    def class_s(self, kind: Class, shares: Floats) -> float:
        """Device seconds of one class on a stage."""
        return self.of_stage(self.seconds * (self.kind == kind), shares)

    @property
    def forward_s(self) -> Floats:
        """Device seconds of the forward pass, recomputation not counted, (n,)."""
        return self.seconds * self.forward * self.once / np.maximum(self.times, 1e-12)

    @property
    def model_flops(self) -> Floats:
        """FLOPs without what is computed again, (n,)."""
        return self.flops * self.once / np.maximum(self.times, 1e-12)

    def layers_s(self, chosen: NDArray[np.bool_]) -> float:
        """Device seconds of chosen operators (n,) in the repeated layers."""
        return float(self.seconds @ (chosen & (self.place == BODY)))


def stage_work(
    graph: Graph,
    typed: tuple[TypedOperator, ...],
    each_s: Floats,
    host_s: Floats,
    again: frozenset[int],
) -> StageWork:
    """From device and host seconds (n,) of one instance of each typed operator.

    ``again`` are positions in the graph that run twice.
    """
    position = _positions(graph, typed)
    first, end = parts_of(graph).body
    operators = [t.operator for t in typed]
    update = np.array([o.direction is Direction.UPDATE for o in operators])
    place = np.where(position < first, START, np.where(position < end, BODY, END))
    once = np.array([o.count for o in operators], dtype=float)
    twice = np.zeros(len(graph.operators) + 1, dtype=bool)
    twice[list(again)] = True
    times = once * (1 + (twice[position] & ~update))
    return StageWork(
        place=np.where(update, BODY, place) if end else np.zeros(len(typed), dtype=np.intp),
        kind=np.array([_class(t) for t in typed], dtype=np.intp),
        forward=_is(o.direction is Direction.FORWARD for o in operators),
        core=_is(o.kind in CORES for o in operators),
        weight=_is(o.direction is Direction.WEIGHT_GRADIENT for o in operators),
        once=once,
        times=times,
        seconds=each_s * times,
        host_s=host_s * times,
        flops=np.array([o.flops for o in operators]) * times,
        bytes=np.array([t.bytes for t in typed]) * times,
    )


def _positions(graph: Graph, typed: tuple[TypedOperator, ...]) -> NDArray[np.intp]:
    """Position in the graph of each typed operator; a cast has that of the operator before it."""
    found, position, last = [], -1, len(graph.operators) - 1
    for item in typed:
        if position < last and item.operator is graph.operators[position + 1]:
            position += 1
        found.append(max(0, position))
    return np.array(found, dtype=np.intp)


def _is(values: Iterable[bool]) -> NDArray[np.bool_]:
    return np.fromiter(values, dtype=bool)


def _class(item: TypedOperator) -> Class:
    kind = item.operator.kind
    if kind is Kind.RNN:
        return Class.RECURRENT
    if kind not in MATMUL:
        return Class.MEMORY
    return Class.TENSOR_CORE if item.tensor_core else Class.MATMUL
