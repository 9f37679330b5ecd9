"""Networks that a user traced: their operators as they were stored."""

from __future__ import annotations

from ...errors import GraphError
from ..builder import GraphBuilder
from ..traced import find_traced, value
from . import Workload, family


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
