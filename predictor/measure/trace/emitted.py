"""Layers that the builders know, as the builders emit them."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ...graphs.builder import Feature, GraphBuilder
from ...graphs.operator import Kind
from ...graphs.recorder import DATA_GRADIENT, FORWARD, WEIGHT_GRADIENT
from .calls import Emit, TracedCall
from .traffic import traffic


def _feature_norm(kind: Kind) -> Emit:
    """Batch, instance or group norm of a feature map."""

    def emit(b: GraphBuilder, call: TracedCall) -> None:
        x = call.inputs[0]
        b.batch_size = x.shape[0]
        b._norm(kind, Feature(x.shape[1], x.shape[2:]), False)

    return emit


def _layer_norm(b: GraphBuilder, call: TracedCall) -> None:
    x = call.inputs[0]
    width = prod(call.numbers(1)) or x.shape[-1]
    b.layer_norm(x.elements // width, width)


def _rms_norm(b: GraphBuilder, call: TracedCall) -> None:
    width = next(a for a in call.arguments if isinstance(a, int))
    b.layer_norm(call.inputs[0].elements // width, width, bias=False)


def _rows(call: TracedCall) -> tuple[int, int]:
    """Rows and columns of a softmax, by the axis it runs over."""
    x = call.inputs[0]
    cols = x.shape[call.number(1)] if x.shape else 1
    return x.elements // cols, cols


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


_MEMORY: Mapping[Emit, str] = {
    _dropout: "whole_dropout native_dropout",
    _cell: "whole_cell",
    _feature_norm(Kind.INSTANCE_NORM): "whole_instance_norm",
    _feature_norm(Kind.GROUP_NORM): "native_group_norm",
    _feature_norm(Kind.BATCH_NORM): "native_batch_norm _native_batch_norm_legit "
    "_native_batch_norm_legit_functional _batch_norm_with_update cudnn_batch_norm",
    _layer_norm: "native_layer_norm _fused_rms_norm",
    _rms_norm: "whole_rms_norm",
    lambda b, call: b.softmax(*_rows(call)): "_softmax _safe_softmax",
    lambda b, call: b.cross_entropy(*_rows(call)): "_log_softmax",
    lambda b, call: b.regression_loss(call.inputs[0].elements, kernels=2.0): "mse_loss l1_loss "
    "smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div",
    _pool: "max_pool2d_with_indices max_pool3d_with_indices avg_pool2d avg_pool3d "
    "_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d",
    _mean: "mean",
    _embedding: "embedding _embedding_bag",
}
MEMORY_LAYERS = {name: emit for emit, names in _MEMORY.items() for name in names.split()}


def _product(b: GraphBuilder, call: TracedCall) -> None:
    first, second = call.inputs[-2], call.inputs[-1]
    (m, k), n = first.shape[-2:], second.shape[-1]
    batch = prod(first.shape[:-2])
    bias = len(call.inputs) == 3
    if batch == 1 and (first.weight or second.weight):
        rows, out = (m, n) if second.weight else (n, m)
        data = call.reached and (first if second.weight else second).trained
        b.linear(rows, k, out, bias=bias, data_gradient=data)
        return
    b.batched_matmul(batch, m, n, k)
    if bias:
        b.elementwise(batch * m * n, backward_writes=0)


def _linear(b: GraphBuilder, call: TracedCall) -> None:
    x, weight = call.inputs[:2]
    b.linear(
        prod(x.shape[:-1]),
        x.shape[-1],
        weight.shape[0],
        bias=len(call.inputs) == 3,
        data_gradient=call.reached and x.trained,
    )


def _matrix_vector(b: GraphBuilder, call: TracedCall) -> None:
    first, second = call.inputs[-2], call.inputs[-1]
    rows = first.shape[0] if len(first.shape) == 2 else 1
    b.batched_matmul(1, rows, 1, second.shape[0])


def _convolution(b: GraphBuilder, call: TracedCall) -> None:
    x, weight = call.inputs[:2]
    out = call.outputs[0]
    transposed, groups = bool(call.number(6)), call.number(8, 1)
    strides, kernel = call.numbers(3), weight.shape[2:]
    spread = strides if len(strides) == len(kernel) else strides * len(kernel)
    size_in, size_out = Feature(x.shape[1], x.shape[2:]), Feature(out.shape[1], out.shape[2:])
    b.batch_size = x.shape[0]
    b._convolution(
        size_in,
        size_out,
        (groups, prod(kernel), prod(spread)),
        len(call.inputs) == 3,
        False,
        call.reached and x.trained,
        size_in.positions if transposed else size_out.positions,
    )


def _grouped(b: GraphBuilder, call: TracedCall) -> None:
    """Rows sorted by expert, each times its expert's matrix (``torch._grouped_mm``)."""
    rows, experts = call.inputs[:2]
    (m, k), (_, _, n) = rows.shape, experts.shape
    flops, weights = 2.0 * m * n * k, float(experts.elements)
    a, c = float(m * k), float(m * n)
    b.emit(Kind.GEMM, FORWARD, (m, n, k), flops=flops, reads=a + weights, writes=c)
    if call.data_gradient:
        b.emit(Kind.GEMM, DATA_GRADIENT, (m, k, n), flops=flops, reads=c + weights, writes=a)
    if call.weight_gradient:
        b.emit(Kind.GEMM, WEIGHT_GRADIENT, (k, n, m), flops=flops, reads=a + c, writes=weights)


def _attention(b: GraphBuilder, call: TracedCall) -> None:
    query, key = call.inputs[:2]
    b.attention(
        prod(query.shape[1:-2]),
        query.shape[-2],
        key.shape[-2],
        query.shape[-1],
        batch=query.shape[0],
        flash=True,
        causal=bool(call.number(3)),
    )


def _recurrent(b: GraphBuilder, call: TracedCall) -> None:
    start = next(i for i, a in enumerate(call.arguments) if a is not None)
    gates, layers, biases, directions, steps, batch, hidden, drops = (
        call.number(start + i) for i in range(8)
    )
    width = call.inputs[0].shape[-1]
    for layer in range(layers):
        b.rnn(
            steps,
            width,
            hidden,
            gates=gates,
            batch=batch,
            bidirectional=directions == 2,
            bias_tensors=2 * biases,
        )
        width = hidden * directions
        if drops and layer < layers - 1:
            b.dropout(steps * batch * width)


PRODUCTS: Mapping[str, Emit] = {
    "addmm": _product,
    "mm": _product,
    "bmm": _product,
    "baddbmm": _product,
    "linear": _linear,
    "mv": _matrix_vector,
    "dot": _matrix_vector,
    "convolution": _convolution,
    "_grouped_mm": _grouped,
    "whole_attention": _attention,
    "whole_rnn": _recurrent,
}
