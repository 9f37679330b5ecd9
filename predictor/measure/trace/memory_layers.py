"""Norms, softmax, losses, pooling, dropout and tables, as the builders emit them."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ...graphs.builder import GraphBuilder
from ...graphs.operator import Kind
from ...graphs.recorder import DATA_GRADIENT, FORWARD
from .calls import Emit, TracedCall
from .traffic import traffic


def _batch_norm(b: GraphBuilder, call: TracedCall) -> None:
    x = call.inputs[0]
    b._norm(Kind.BATCH_NORM, x.elements // x.shape[1], x.shape[1], False)


def _instance_norm(b: GraphBuilder, call: TracedCall) -> None:
    x = call.inputs[0]
    b._norm(Kind.INSTANCE_NORM, x.elements // x.shape[1], x.shape[1], False)


def _group_norm(b: GraphBuilder, call: TracedCall) -> None:
    x = call.inputs[0]
    b._norm(Kind.GROUP_NORM, x.elements // x.shape[1], x.shape[1], False)


def _layer_norm(b: GraphBuilder, call: TracedCall) -> None:
    x = call.inputs[0]
    width = prod(call.numbers(1)) or x.shape[-1]
    b.layer_norm(x.elements // width, width)


def _rms_norm(b: GraphBuilder, call: TracedCall) -> None:
    width = next(a for a in call.arguments if isinstance(a, int))
    b.layer_norm(call.inputs[0].elements // width, width, bias=False)


def _softmax(b: GraphBuilder, call: TracedCall) -> None:
    x = call.inputs[0]
    cols = x.shape[call.number(1)] if x.shape else 1
    b.softmax(x.elements // cols, cols)


def _log_softmax(b: GraphBuilder, call: TracedCall) -> None:
    x = call.inputs[0]
    cols = x.shape[call.number(1)] if x.shape else 1
    b.cross_entropy(x.elements // cols, cols)


def _pointwise_loss(b: GraphBuilder, call: TracedCall) -> None:
    b.regression_loss(call.inputs[0].elements, kernels=2.0)


def _pool(b: GraphBuilder, call: TracedCall) -> None:
    x, out = call.inputs[0], call.outputs[0]
    channels = x.shape[1] if len(x.shape) > 2 else 1
    a, c = float(x.elements), float(out.elements)
    dims = (out.elements // channels, channels)
    function = "max_pool" if call.name.startswith("max_pool") else ""
    b.emit(Kind.POOL, FORWARD, dims, reads=a, writes=c, function=function)
    if b._backward:
        b.emit(Kind.POOL, DATA_GRADIENT, dims, reads=2 * c, writes=a, function=function)


def _mean(b: GraphBuilder, call: TracedCall) -> None:
    """A mean over all positions of a feature map is a pooling; any other is a reduction."""
    x, axes = call.inputs[0], call.numbers(1)
    spatial = {a % len(x.shape) for a in axes} == set(range(2, len(x.shape)))
    if len(x.shape) > 3 and spatial:
        _pool(b, call)
    else:
        traffic(b, [call])


def _dropout(b: GraphBuilder, call: TracedCall) -> None:
    b.dropout(float(call.inputs[0].elements))


def _cell(b: GraphBuilder, call: TracedCall) -> None:
    """The pointwise kernel of an LSTM or GRU cell, which keeps its gates for the backward."""
    gates = float(call.inputs[0].elements)
    state = float(call.outputs[0].elements)
    states = len(call.outputs)
    b.emit(
        Kind.ELEMENTWISE,
        FORWARD,
        (1, int(gates)),
        reads=2 * gates + state,
        writes=gates + states * state,
        function="_thnn_fused_lstm_cell",
    )
    if b._backward:
        b.emit(
            Kind.ELEMENTWISE,
            DATA_GRADIENT,
            (1, int(gates)),
            reads=gates + (2 * states - 1) * state + state,
            writes=gates + state,
            function="_thnn_fused_lstm_cell_backward",
        )


def _embedding(b: GraphBuilder, call: TracedCall) -> None:
    table, index = call.inputs[:2]
    b.embedding(index.elements, table.shape[1], table.shape[0], sparse=table.sparse)


MEMORY_LAYERS: Mapping[str, Emit] = {
    "whole_dropout": _dropout,
    "native_dropout": _dropout,
    "whole_cell": _cell,
    "whole_instance_norm": _instance_norm,
    "native_batch_norm": _batch_norm,
    "_native_batch_norm_legit": _batch_norm,
    "_native_batch_norm_legit_functional": _batch_norm,
    "_batch_norm_with_update": _batch_norm,
    "cudnn_batch_norm": _batch_norm,
    "native_group_norm": _group_norm,
    "native_layer_norm": _layer_norm,
    "_fused_rms_norm": _layer_norm,
    "whole_rms_norm": _rms_norm,
    "_softmax": _softmax,
    "_safe_softmax": _softmax,
    "_log_softmax": _log_softmax,
    "mse_loss": _pointwise_loss,
    "l1_loss": _pointwise_loss,
    "smooth_l1_loss": _pointwise_loss,
    "huber_loss": _pointwise_loss,
    "binary_cross_entropy": _pointwise_loss,
    "binary_cross_entropy_with_logits": _pointwise_loss,
    "kl_div": _pointwise_loss,
    "max_pool2d_with_indices": _pool,
    "max_pool3d_with_indices": _pool,
    "avg_pool2d": _pool,
    "avg_pool3d": _pool,
    "_adaptive_avg_pool2d": _pool,
    "_adaptive_avg_pool3d": _pool,
    "adaptive_max_pool2d": _pool,
    "mean": _mean,
    "embedding": _embedding,
    "_embedding_bag": _embedding,
}
