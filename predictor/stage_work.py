"""Device and host work of a micro-step, by where in the network it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .autocast import TypedOperator
from .graphs.operator import Direction, Graph, Kind
from .graphs.parts import is_forward, parts_of
from .operator_time.work import Floats

MATMUL = frozenset({Kind.GEMM, Kind.BATCHED_GEMM, Kind.CONV, Kind.ATTENTION})
CORES = frozenset({Kind.BATCHED_GEMM, Kind.ATTENTION})
START, BODY, END = range(3)


@dataclass(frozen=True, slots=True)
class StageWork:
    """One micro-step of a whole network: arrays over its typed operators.

    ``place`` says whether an operator stands before, in or behind the repeated layers, ``times``
    how often it runs, recomputation included, ``seconds`` what the device needs for all of them.
    """

    typed: tuple[TypedOperator, ...]
    place: NDArray[np.intp]
    times: Floats
    seconds: Floats

    def device_s(self, shares: Floats) -> float:
        """Device seconds of a stage with these shares (3,) of start, layers and end."""
        return float(self.seconds @ shares[self.place])

    def launches(self, shares: Floats) -> float:
        """Device launches of a stage."""
        kernels = np.array([t.operator.kernels for t in self.typed])
        return float((kernels * self.times) @ shares[self.place])

    def flops(self, shares: Floats) -> float:
        """FLOPs of a stage."""
        flops = np.array([t.operator.flops for t in self.typed])
        return float((flops * self.times) @ shares[self.place])

    def bytes(self, shares: Floats) -> float:
        """Bytes that a stage moves to and from memory."""
        moved = np.array([t.bytes for t in self.typed])
        return float((moved * self.times) @ shares[self.place])

    def forward_s(self, shares: Floats) -> float:
        """Device seconds of the forward pass of a stage, recomputation not counted."""
        once = np.array([t.operator.count * is_forward(t.operator) for t in self.typed])
        return float((self.seconds * once / np.maximum(self.times, 1e-12)) @ shares[self.place])

    def layers_s(self, kinds: frozenset[Kind], direction: Direction | None = None) -> float:
        """Device seconds of some kinds of operators in the repeated layers."""
        chosen = [
            t.operator.kind in kinds and direction in (None, t.operator.direction)
            for t in self.typed
        ]
        return float(self.seconds @ (np.array(chosen) & (self.place == BODY)))

    def classes(self, shares: Floats) -> Mapping[str, float]:
        """Device seconds of a stage by class: tensor_core, matmul, recurrent, memory."""
        totals = {"tensor_core": 0.0, "matmul": 0.0, "recurrent": 0.0, "memory": 0.0}
        for item, seconds in zip(self.typed, self.seconds * shares[self.place], strict=True):
            kind = item.operator.kind
            if kind is Kind.RNN:
                totals["recurrent"] += float(seconds)
            elif kind in MATMUL:
                totals["tensor_core" if item.tensor_core else "matmul"] += float(seconds)
            else:
                totals["memory"] += float(seconds)
        return totals


def stage_work(
    graph: Graph, typed: tuple[TypedOperator, ...], once_s: Floats, again: frozenset[int]
) -> StageWork:
    """From device seconds ``once_s`` (n,) of one instance of each typed operator.

    Operators that are not of the graph (casts) belong to the one before them, those of the step
    as a whole to the layers. ``again`` are positions in the graph that run twice.
    """
    first, end = parts_of(graph).body
    place = np.zeros(len(typed), dtype=np.intp)
    times = np.array([t.operator.count for t in typed])
    position = -1
    for i, item in enumerate(typed):
        following = position + 1
        if following < len(graph.operators) and item.operator is graph.operators[following]:
            position = following
            times[i] *= 1 + (position in again)
        if end:
            place[i] = START if position < first else BODY if position < end else END
            if item.operator.direction is Direction.UPDATE:
                place[i] = BODY
    return StageWork(typed, place, times, once_s * times)
