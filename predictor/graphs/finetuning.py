"""What fine-tuning makes of a graph: adapters beside frozen weights, or a head on a frozen body."""

from __future__ import annotations

from dataclasses import replace

from .builder import GraphBuilder
from .operator import Direction, Graph, Kind, Operator

CORES = frozenset({Kind.ATTENTION, Kind.BATCHED_GEMM})
# Gradients of these are of weights alone.
WEIGHED = frozenset({Kind.GEMM, Kind.CONV, Kind.EMBEDDING})


def adapted(graph: Graph, rank: int, batch_size: int) -> Graph:
    """The graph with adapters of ``rank`` beside the projections of attention, which train alone.

    Data gradients still flow through what is frozen (arXiv 2106.09685). Networks without attention
    have them beside every repeated matrix product, and where there is none nothing is added.
    """
    beside = _projections(graph) or {
        i for i, o in enumerate(graph.operators) if o.kind is Kind.GEMM and _repeated(o)
    }
    builder = GraphBuilder(batch_size)
    operators: list[Operator] = []
    waiting: list[Operator] = []
    for index, operator in enumerate(graph.operators):
        if _is_forward(operator):
            operators += waiting
            waiting = _adapter(builder, operator, rank) if index in beside else []
        if not _of_weights(operator):
            operators.append(operator)
    added = builder.build()
    return replace(
        graph,
        operators=(*operators, *waiting),
        parameters=graph.parameters + added.parameters,
        trainable_parameters=added.parameters,
        parameter_tensors=added.parameter_tensors,
        sparse_parameters=0,
    )


def head_alone(graph: Graph) -> Graph:
    """The graph with its last matrix product trained on a body that only runs forward."""
    heads = [i for i, o in enumerate(graph.operators) if o.kind is Kind.GEMM and _is_forward(o)]
    if not heads:
        return graph
    last, head = heads[-1], graph.operators[heads[-1]]
    kept = [
        o
        for i, o in enumerate(graph.operators)
        if _is_forward(o) or (i > last and (_of_weights(o) or o.kind is not Kind.GEMM))
    ]
    out, width = head.dims[1:]
    return replace(
        graph,
        operators=tuple(kept),
        trainable_parameters=round(out * width * head.count) + out,
        parameter_tensors=2,
        sparse_parameters=0,
    )


def _projections(graph: Graph) -> set[int]:
    """Where the matrix products into and out of the attention of repeated layers stand."""
    found: set[int] = set()
    entering: list[int] = []
    leaving = False
    for index, operator in enumerate(graph.operators):
        if not _is_forward(operator):
            continue
        if operator.kind is Kind.LAYER_NORM:
            entering = []
        elif operator.kind in CORES and _repeated(operator):
            found |= set(entering)
            entering, leaving = [], True
        elif operator.kind is Kind.GEMM and _repeated(operator):
            if leaving:
                found.add(index)
            else:
                entering.append(index)
            leaving = False
    return found


def _adapter(builder: GraphBuilder, beside: Operator, rank: int) -> list[Operator]:
    """Dropout, both products, scaling and sum, with their gradients."""
    rows, out, width = beside.dims
    before = len(builder.build().operators)
    with builder.repeat(int(beside.count)):
        builder.dropout(rows * width)
        builder.linear(rows, width, rank, bias=False)
        builder.linear(rows, rank, out, bias=False)
        builder.elementwise(rows * out, backward_reads=1)
        builder.add(rows * out)
    return list(builder.build().operators[before:])


def _is_forward(operator: Operator) -> bool:
    """Whether this is work of the forward pass."""
    return operator.direction is Direction.FORWARD


def _repeated(operator: Operator) -> bool:
    return operator.count > 1


def _of_weights(operator: Operator) -> bool:
    return operator.direction is Direction.WEIGHT_GRADIENT and operator.kind in WEIGHED
