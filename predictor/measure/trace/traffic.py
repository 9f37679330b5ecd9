"""Calls that the builders have no layer for: their traffic, and RMS norms that are spelt out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from math import prod

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


def norms_whole(calls: Sequence[TracedCall]) -> Iterator[list[TracedCall]]:
    """Each call by itself, but the calls of one RMS norm together."""
    group: list[TracedCall] = []
    for call in calls:
        if group and call.norm != group[0].norm:
            yield group
            group = []
        if call.norm is None:
            yield [call]
        else:
            group.append(call)
    if group:
        yield group


def spelt_norm(b: GraphBuilder, calls: Sequence[TracedCall]) -> None:
    """An RMS norm that a module spells out: the norm, and the traffic of its chain beyond it."""
    launched = [c for c in calls if not c.free]
    shape = max((c.inputs[0].shape for c in launched), key=prod)
    rows, width = prod(shape[:-1]), shape[-1]
    n = rows * width
    back = [g for c in calls for g in c.gradients]
    with ExitStack() as scopes:
        if not back:
            scopes.enter_context(b.forward_only())
        b.layer_norm(rows, width, bias=False)
        b.elementwise(
            n,
            reads=max(0.0, sum(c.reads for c in launched) / n - 1),
            writes=max(0.0, sum(c.writes for c in launched) / n - 1),
            backward_reads=max(0.0, sum(g.reads for g in back) / n - 3),
            backward_writes=max(0.0, sum(g.writes for g in back) / n - 1),
            kernels=float(max(1, len(launched) - 1)),
            backward_kernels=float(max(1, len(back) - 2)),
        )
