"""Calls of torch -> operators, in the conventions of the catalog's builders.

Layers that the builders know are emitted by the builders' own methods; all else by its traffic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod

from ..graphs.builder import Feature, GraphBuilder
from ..graphs.operator import Kind, Operator
from ..graphs.recorder import DATA_GRADIENT, FORWARD
from .calls import Call
from .known import LITERAL, PART_OF_LOSS

Emit = Callable[[GraphBuilder, Call], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """The operators of one step; ``unknown`` are names of calls priced by bytes, how often."""

    operators: tuple[Operator, ...]
    unknown: Mapping[str, int]


def mapped(calls: Sequence[Call]) -> Mapped:
    """The operators of forward calls, each followed by its gradients."""
    _settle_additions(calls)
    b = GraphBuilder(1)
    unknown: Counter[str] = Counter()
    for group in _norms_whole(calls):
        call = group[0]
        if call.norm is not None:
            _spelt_norm(b, group)
        elif call.name in _LAYERS:
            with ExitStack() as scopes:
                _gradients(b, call, scopes)
                _LAYERS[call.name](b, call)
        elif not call.free and call.name not in PART_OF_LOSS and not _counter(call):
            _traffic(b, [call])
            if not call.pointwise and call.name.removesuffix("_") not in LITERAL:
                unknown[call.name] += 1
        if call.norm is None and call.name not in _LAYERS and call.free:
            _backward_traffic(b, [call])
        else:
            _joined(b, group)
    return Mapped(operators=b.build().operators, unknown=dict(unknown))


def _counter(call: Call) -> bool:
    """Whether it counts steps in an integer, as batch norm does: nothing the device waits for."""
    return not call.reached and all(t.elements == 1 and t.moved > 1 for t in call.outputs)


def _settle_additions(calls: Sequence[Call]) -> None:
    """Where branches join again, the sum of their gradients belongs to the addition before them."""
    places: dict[tuple[int, ...], Call] = {}
    for call in calls:
        if call.name in ("add", "add_") and call.reached and not call.gradients:
            places[call.outputs[0].shape] = call
        for addition in tuple(call.additions):
            place = places.pop(addition.outputs[0].shape, None)
            if place not in (None, call):
                call.additions.remove(addition)
                place.additions.append(addition)


def _norms_whole(calls: Sequence[Call]) -> Iterator[list[Call]]:
    """Each call by itself, but the calls of one RMS norm together."""
    group: list[Call] = []
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


def _gradients(b: GraphBuilder, call: Call, scopes: ExitStack) -> None:
    """Leave out the gradients that the backward pass did not compute."""
    if not call.reached or not (call.data_gradient or call.weight_gradient):
        scopes.enter_context(b.forward_only())
    elif not call.weight_gradient:
        scopes.enter_context(b.frozen())


# --- by traffic ----------------------------------------------------------------------------------


def _traffic(b: GraphBuilder, calls: Sequence[Call]) -> None:
    cols = int(max(t.elements for c in calls for t in (*c.outputs, *c.inputs)) if calls else 0)
    reads, writes = sum(c.reads for c in calls), sum(c.writes for c in calls)
    if cols:
        b.emit(
            Kind.ELEMENTWISE, FORWARD, (1, cols), reads=reads, writes=writes,
            kernels=float(len(calls)),
        )  # fmt: skip
    _backward_traffic(b, calls)


def _backward_traffic(b: GraphBuilder, calls: Sequence[Call]) -> None:
    _emit_gradient(b, [g for c in calls for g in c.gradients])


def _joined(b: GraphBuilder, calls: Sequence[Call]) -> None:
    _emit_gradient(b, [g for c in calls for g in c.additions])


def _emit_gradient(b: GraphBuilder, gradients: Sequence[Call]) -> None:
    if gradients:
        cols = max(t.elements for g in gradients for t in (*g.outputs, *g.inputs))
        b.emit(
            Kind.ELEMENTWISE, DATA_GRADIENT, (1, cols), reads=sum(g.reads for g in gradients),
            writes=sum(g.writes for g in gradients), kernels=float(len(gradients)),
        )  # fmt: skip


def _spelt_norm(b: GraphBuilder, calls: Sequence[Call]) -> None:
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


# --- matrix products -----------------------------------------------------------------------------


def _product(b: GraphBuilder, call: Call) -> None:
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


def _linear(b: GraphBuilder, call: Call) -> None:
    x, weight = call.inputs[:2]
    b.linear(
        prod(x.shape[:-1]), x.shape[-1], weight.shape[0], bias=len(call.inputs) == 3,
        data_gradient=call.reached and x.trained,
    )  # fmt: skip


def _matrix_vector(b: GraphBuilder, call: Call) -> None:
    first, second = call.inputs[-2], call.inputs[-1]
    rows = first.shape[0] if len(first.shape) == 2 else 1
    b.batched_matmul(1, rows, 1, second.shape[0])


def _convolution(b: GraphBuilder, call: Call) -> None:
    x, weight = call.inputs[:2]
    out = call.outputs[0]
    transposed, groups = bool(call.number(6)), call.number(8, 1)
    strides, kernel = call.numbers(3), weight.shape[2:]
    spread = strides if len(strides) == len(kernel) else strides * len(kernel)
    size_in, size_out = Feature(x.shape[1], x.shape[2:]), Feature(out.shape[1], out.shape[2:])
    b.batch_size = x.shape[0]
    b._convolution(
        size_in, size_out, kernel, spread, groups, len(call.inputs) == 3, False,
        call.reached and x.trained, size_in.positions if transposed else size_out.positions,
    )  # fmt: skip


def _attention(b: GraphBuilder, call: Call) -> None:
    query, key = call.inputs[:2]
    b.attention(
        prod(query.shape[1:-2]), query.shape[-2], key.shape[-2], query.shape[-1],
        batch=query.shape[0], flash=True, causal=bool(call.number(3)),
    )  # fmt: skip


def _recurrent(b: GraphBuilder, call: Call) -> None:
    start = next(i for i, a in enumerate(call.arguments) if a is not None)
    gates, layers, biases, directions, steps, batch, hidden, drops = (
        call.number(start + i) for i in range(8)
    )
    width = call.inputs[0].shape[-1]
    for layer in range(layers):
        b.rnn(
            steps, width, hidden, gates=gates, batch=batch, bidirectional=directions == 2,
            bias_tensors=2 * biases,
        )  # fmt: skip
        width = hidden * directions
        if drops and layer < layers - 1:
            b.dropout(steps * batch * width)


# --- norms, softmax, losses, pooling, tables -----------------------------------------------------


def _batch_norm(b: GraphBuilder, call: Call) -> None:
    x = call.inputs[0]
    b._norm(Kind.BATCH_NORM, x.elements // x.shape[1], x.shape[1], False)


def _instance_norm(b: GraphBuilder, call: Call) -> None:
    x = call.inputs[0]
    b._norm(Kind.INSTANCE_NORM, x.elements // x.shape[1], x.shape[1], False)


def _group_norm(b: GraphBuilder, call: Call) -> None:
    x = call.inputs[0]
    b._norm(Kind.GROUP_NORM, x.elements // x.shape[1], x.shape[1], False)


def _layer_norm(b: GraphBuilder, call: Call) -> None:
    x = call.inputs[0]
    width = prod(call.numbers(1)) or x.shape[-1]
    b.layer_norm(x.elements // width, width)


def _rms_norm(b: GraphBuilder, call: Call) -> None:
    width = next(a for a in call.arguments if isinstance(a, int))
    b.layer_norm(call.inputs[0].elements // width, width, bias=False)


def _softmax(b: GraphBuilder, call: Call) -> None:
    x = call.inputs[0]
    cols = x.shape[call.number(1)] if x.shape else 1
    b.softmax(x.elements // cols, cols)


def _log_softmax(b: GraphBuilder, call: Call) -> None:
    x = call.inputs[0]
    cols = x.shape[call.number(1)] if x.shape else 1
    b.cross_entropy(x.elements // cols, cols)


def _pointwise_loss(b: GraphBuilder, call: Call) -> None:
    b.regression_loss(call.inputs[0].elements, kernels=2.0)


def _pool(b: GraphBuilder, call: Call) -> None:
    x, out = call.inputs[0], call.outputs[0]
    channels = x.shape[1] if len(x.shape) > 2 else 1
    a, c = float(x.elements), float(out.elements)
    dims = (out.elements // channels, channels)
    b.emit(Kind.POOL, FORWARD, dims, reads=a, writes=c)
    if b._backward:
        b.emit(Kind.POOL, DATA_GRADIENT, dims, reads=2 * c, writes=a)


def _mean(b: GraphBuilder, call: Call) -> None:
    """A mean over all positions of a feature map is a pooling; any other is a reduction."""
    x, axes = call.inputs[0], call.numbers(1)
    spatial = {a % len(x.shape) for a in axes} == set(range(2, len(x.shape)))
    if len(x.shape) > 3 and spatial:
        _pool(b, call)
    else:
        _traffic(b, [call])


def _dropout(b: GraphBuilder, call: Call) -> None:
    b.dropout(float(call.inputs[0].elements))


def _embedding(b: GraphBuilder, call: Call) -> None:
    table, index = call.inputs[:2]
    b.embedding(index.elements, table.shape[1], table.shape[0], sparse=table.sparse)


_LAYERS: Mapping[str, Emit] = {
    "addmm": _product, "mm": _product, "bmm": _product, "baddbmm": _product, "linear": _linear,
    "mv": _matrix_vector, "dot": _matrix_vector,
    "convolution": _convolution,
    "whole_attention": _attention, "whole_rnn": _recurrent, "whole_dropout": _dropout,
    "native_dropout": _dropout, "whole_instance_norm": _instance_norm, "whole_rms_norm": _rms_norm,
    "native_batch_norm": _batch_norm, "_native_batch_norm_legit": _batch_norm,
    "_native_batch_norm_legit_functional": _batch_norm, "_batch_norm_with_update": _batch_norm,
    "cudnn_batch_norm": _batch_norm, "native_group_norm": _group_norm,
    "native_layer_norm": _layer_norm, "_fused_rms_norm": _layer_norm,
    "_softmax": _softmax, "_safe_softmax": _softmax, "_log_softmax": _log_softmax,
    "mse_loss": _pointwise_loss, "l1_loss": _pointwise_loss, "smooth_l1_loss": _pointwise_loss,
    "huber_loss": _pointwise_loss, "binary_cross_entropy": _pointwise_loss,
    "binary_cross_entropy_with_logits": _pointwise_loss, "kl_div": _pointwise_loss,
    "max_pool2d_with_indices": _pool, "max_pool3d_with_indices": _pool, "avg_pool2d": _pool,
    "avg_pool3d": _pool, "_adaptive_avg_pool2d": _pool, "_adaptive_avg_pool3d": _pool,
    "adaptive_max_pool2d": _pool, "mean": _mean,
    "embedding": _embedding, "_embedding_bag": _embedding,
}  # fmt: skip
