"""Calls that the builders have no layer for: priced by what they read and write."""

from __future__ import annotations

from collections.abc import Sequence

from ...graphs.builder import GraphBuilder
from ...graphs.operator import Kind
from ...graphs.recorder import DATA_GRADIENT, FORWARD
from .calls import TracedCall


def traffic(b: GraphBuilder, calls: Sequence[TracedCall]) -> None:
    """Elementwise operators with the traffic of these calls, forward and backward."""
    cols = int(max(t.elements for c in calls for t in (*c.outputs, *c.inputs)) if calls else 0)
    reads, writes = sum(c.reads for c in calls), sum(c.writes for c in calls)
    if cols:
        b.emit(
            Kind.ELEMENTWISE,
            FORWARD,
            (1, cols),
            reads=reads,
            writes=writes,
            kernels=float(len(calls)),
            function=calls[0].name,
        )
    backward_traffic(b, calls)


def backward_traffic(b: GraphBuilder, calls: Sequence[TracedCall]) -> None:
    """The traffic of their gradients alone."""
    _emit_gradient(b, [g for c in calls for g in c.gradients])


def joined(b: GraphBuilder, calls: Sequence[TracedCall]) -> None:
    """The sums of gradients where branches join again."""
    additions = [g for c in calls for g in c.additions]
    origins = frozenset[str]().union(*(g.result for g in additions))
    with b.formats(origins, origins):
        _emit_gradient(b, additions)


def _emit_gradient(b: GraphBuilder, gradients: Sequence[TracedCall]) -> None:
    if gradients:
        cols = max(t.elements for g in gradients for t in (*g.outputs, *g.inputs))
        b.emit(
            Kind.ELEMENTWISE,
            DATA_GRADIENT,
            (1, cols),
            reads=sum(g.reads for g in gradients),
            writes=sum(g.writes for g in gradients),
            kernels=float(len(gradients)),
            function=gradients[0].name,
        )
