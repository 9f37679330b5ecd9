"""Calls of torch -> operators, in the conventions of the catalog's builders.

Layers that the builders know are emitted by the builders' own methods; all else by its traffic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from math import prod

from ...graphs.builder import Feature, GraphBuilder
from ...graphs.operator import DATA_GRADIENT, FORWARD, Kind, Operator, Workload
from .calls import NAMES, TracedCall

Emit = Callable[[GraphBuilder, TracedCall], None]  # adds the operators of one call


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """The operators of one step; ``unknown`` are names of calls priced by bytes, how often."""

    operators: tuple[Operator, ...]
    unknown: Mapping[str, int]


def mapped(calls: Sequence[TracedCall]) -> Mapped:
    """The operators of forward calls, each followed by its gradients."""
    _settle_additions(calls)
    b = GraphBuilder(Workload(1))
    unknown: Counter[str] = Counter()
    for group in _norms_whole(calls):
        call, result = group[0], group[-1].result
        layer = LAYERS.get(call.name)
        whole = call.norm is not None or layer is not None
        back = call.given if call.name in NAMES["cast_back_first"] else result
        with b.formats(result if whole else call.given, back, entering=call.given):
            if call.norm is not None:
                _spelt_norm(b, group)
            elif layer is not None:
                with _computed(b, call):
                    layer(b, call)
            elif not call.free and call.name not in NAMES["part_of_loss"] and not _counter(call):
                _traffic(b, call)
                if not call.pointwise and call.name.removesuffix("_") not in NAMES["literal"]:
                    unknown[call.name] += 1
            if call.free and not whole:
                _gradients(b, call.gradients)
            else:
                additions = [g for c in group for g in c.additions]
                origins = frozenset[str]().union(*(g.result for g in additions))
                with b.formats(origins, origins):
                    _gradients(b, additions)
    return Mapped(operators=b.build().operators, unknown=dict(unknown))


def _settle_additions(calls: Sequence[TracedCall]) -> None:
    """Where branches join again, the sum of their gradients belongs to the addition before them."""
    places: dict[tuple[int, ...], TracedCall] = {}
    for call in calls:
        if call.name in ("add", "add_") and call.reached and not call.gradients:
            places[call.outputs[0].shape] = call
        for addition in tuple(call.additions):
            place = places.pop(addition.outputs[0].shape, None)
            if place not in (None, call):
                call.additions.remove(addition)
                addition.result = place.result
                place.additions.append(addition)


def _norms_whole(calls: Sequence[TracedCall]) -> Iterator[list[TracedCall]]:
    """Each call by itself, but the calls of one RMS norm together."""
    for norm, run in groupby(calls, key=lambda call: call.norm):
        group = list(run)
        yield from [[call] for call in group] if norm is None else [group]


def _spelt_norm(b: GraphBuilder, calls: Sequence[TracedCall]) -> None:
    """An RMS norm that a module spells out: the norm, and the traffic of its chain beyond it."""
    launched = [c for c in calls if not c.free]
    shape = max((c.inputs[0].shape for c in launched), key=prod)
    rows, width = prod(shape[:-1]), shape[-1]
    n = rows * width
    back = [g for c in calls for g in c.gradients]
    with nullcontext() if back else b.forward_only():
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


def _computed(b: GraphBuilder, call: TracedCall) -> AbstractContextManager[object]:
    """Leaves out the gradients that the backward pass did not compute."""
    if call.weight_gradient:
        return nullcontext()
    return b.frozen() if call.data_gradient else b.forward_only()


def _counter(call: TracedCall) -> bool:
    """Whether it counts steps in an integer, as batch norm does: nothing the device waits for."""
    return not call.reached and all(t.elements == 1 and t.moved > 1 for t in call.outputs)


def _traffic(b: GraphBuilder, call: TracedCall) -> None:
    """An elementwise operator with the traffic of a call, and that of its gradients."""
    cols = int(max(t.elements for t in (*call.outputs, *call.inputs)))
    if cols:
        b.emit(
            Kind.ELEMENTWISE,
            FORWARD,
            (1, cols),
            reads=call.reads,
            writes=call.writes,
            kernels=1.0,
            function=call.name,
        )
    _gradients(b, call.gradients)


def _gradients(b: GraphBuilder, gradients: Sequence[TracedCall]) -> None:
    """The traffic of some gradients, as one elementwise operator."""
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


def _feature_norm(kind: str) -> Emit:
    """Batch, instance or group norm of a feature map."""

    def emit(b: GraphBuilder, call: TracedCall) -> None:
        x = call.inputs[0]
        b.batch_size = x.shape[0]
        b.norm(Feature(x.shape[1], x.shape[2:]), kind, affine=False)

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
        _traffic(b, call)


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
    lambda b, call: b.dropout(float(call.inputs[0].elements)): "whole_dropout native_dropout",
    _cell: "whole_cell",
    _feature_norm("instance"): "whole_instance_norm",
    _feature_norm("group"): "native_group_norm",
    _feature_norm("batch"): "native_batch_norm _native_batch_norm_legit "
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
    first, second = call.inputs[-2:]
    b.batched_matmul(1, first.shape[0] if len(first.shape) == 2 else 1, 1, second.shape[0])


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
    into = (m, k, n) if call.data_gradient else None
    b._gradients(Kind.GEMM, into, (k, n, m), flops, a, weights, c)


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


PRODUCTS: dict[str, Emit] = {
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
LAYERS = PRODUCTS | {name: emit for emit, names in _MEMORY.items() for name in names.split()}
