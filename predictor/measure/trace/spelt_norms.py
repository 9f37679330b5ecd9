"""RMS norms that a module spells out in pointwise operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from math import prod

from ...graphs.builder import GraphBuilder
from .calls import TracedCall


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
