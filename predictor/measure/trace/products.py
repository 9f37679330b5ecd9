"""Matrix products, convolutions, attention and recurrent layers, as the builders emit them."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ...graphs.builder import Feature, GraphBuilder
from ...graphs.operator import Kind
from ...graphs.recorder import DATA_GRADIENT, FORWARD, WEIGHT_GRADIENT
from .calls import Emit, TracedCall


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
        kernel,
        spread,
        groups,
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
