"""Networks that a library defines: their operators as the tracer recorded them."""

from __future__ import annotations

from ...errors import GraphError
from ..builder import GraphBuilder
from ..operator import Direction, Kind, Operator
from ..recorded import recorded_graph
from ..traced import find_traced, value
from . import Workload, family

CHANNELS = 3


@family("recorded")
def recorded(b: GraphBuilder, work: Workload, *, graph: str) -> None:
    """The recording ``graph`` (``timm/resnet50``) for the batch and the image of ``work``.

    Attention was recorded as one operator; where ``work`` has no fused attention it is divided.
    """
    found = recorded_graph(graph)
    image = work.image
    b.input(CHANNELS * image[0] * image[-1])
    parameters, trained, tensors = (
        round(found.size(law, 1, image))
        for law in (found.weights.parameters, found.weights.trainable, found.weights.tensors)
    )
    b.parameters(trained, tensors)
    with b.frozen():
        b.parameters(parameters - trained)
    for operator in found.operators_at(work.batch_size, image):
        if operator.kind is Kind.ATTENTION and not work.flash_attention:
            _divided(b, operator)
        else:
            b.take([operator])


def _divided(b: GraphBuilder, operator: Operator) -> None:
    """Two products with a softmax between, as code without fused attention runs it."""
    if operator.direction is Direction.FORWARD:
        queries, keys, width, groups = operator.dims
        with b.repeat(int(operator.count)), b.formats(operator.origins or (), ()):
            b.attention(groups, queries, keys, width, batch=1, dropout=False)


@family("traced")
def traced(b: GraphBuilder, work: Workload, *, trace: str) -> None:
    """The stored network ``trace``, a name with its hash, for the sizes of ``work``."""
    found = find_traced(trace)
    if found is None:
        raise GraphError(f"the traced network {trace} was replaced or removed")
    model = found.model
    seq_len = work.seq_len or model.seq_len or 0
    b.input(value(model.input_elements, work.batch_size, seq_len) / work.batch_size)
    dense = model.trainable_parameters - model.sparse_parameters
    b.parameters(dense, model.parameter_tensors)
    b.parameters(model.sparse_parameters, 0, sparse=True)
    with b.frozen():
        b.parameters(model.parameters - model.trainable_parameters)
    b.take(model.operators_at(work))
