"""What autograd keeps of a forward pass until its backward pass, read off the operator graph.

The rules are those of torch's ``derivatives.yaml``: a matrix product or convolution keeps its
input (its weight is counted elsewhere), a norm its input and statistics, softmax and ReLU their
result, GELU and SiLU their input, dropout a mask of one byte, max pooling indices of eight, a copy
or an addition nothing. A tensor that two operators keep in the same format is stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...graphs.operator import Direction, Graph, Kind, Operator
from ..formats import Storage
from .flow import Flow, Kept

INDEX_BYTES = 8  # torch indices are int64
STATISTICS_BYTES = 4  # FP32 log-sum-exp of attention, mean or deviation of a norm
DROPOUT_WRITES = 1.25  # elements an instance of MemoryLayers.dropout writes: result and mask
ROTARY_WRITES = 4.5  # of eager rotary embedding: its tables need no gradient
NORM_CHAIN = 5  # launches from which pointwise work behind a norm is a part of that norm
GATE_READS = 4  # elements read by the backward of a product with one value a channel
GELU_CHAIN = 4  # tensors kept of a GELU spelt out by eager code: input, half, tanh, 1 + tanh
GLOBAL_WINDOW = 36  # input elements per output from which pooling is a mean over all positions

# Families whose activation between convolutions keeps its input (SiLU, GELU, hard swish), and
# those whose activation between linear layers keeps its result, which the next layer keeps too.
SMOOTH_CONVOLUTIONS = frozenset({"efficientnet", "efficientdet", "convnext", "diffusion"})
RELU_LINEARS = frozenset(
    {"alexnet", "autoencoder", "dlrm", "ncf", "seq2seq", "transformer_xl", "vgg", "wide_and_deep"}
)
# Families whose scan is one kernel from convolution to norm, which computes again what lies between
# (mamba_split_conv1d_scan_combined, arXiv 2405.21060).
FUSED_SCANS = frozenset({"mamba"})


def kept_by(graph: Graph, storage: Storage, family: str) -> tuple[Kept, ...]:
    """Every forward operator of a graph, in order, with what it keeps."""
    flow = Flow(storage, family in SMOOTH_CONVOLUTIONS, family in RELU_LINEARS, bytes=storage.full)
    normed = any(o.kind is Kind.LAYER_NORM for o in graph.operators)
    flow.stream = storage.full if normed else storage.activation
    found = []
    groups = _groups(graph)
    for (forward, backward), following in zip(groups, [*groups[1:], None], strict=True):
        if forward.kind is Kind.ELEMENTWISE and following and following[0].kind is Kind.LOSS:
            backward = []  # a bias or a copy of the logits: the loss keeps its own result
        scan_begins = family in FUSED_SCANS and forward.kind is Kind.CONV
        flow.scanning = scan_begins or (flow.scanning and forward.kind is not Kind.LAYER_NORM)
        flow.in_norm = flow.previous is Kind.LAYER_NORM and _is_chain(forward)
        rule = _scanned if flow.scanning else _RULES.get(forward.kind, _elementwise)
        found.append(rule(flow, forward, backward))
        if not flow.in_norm:
            flow.previous = forward.kind
    return tuple(found)


def _is_chain(op: Operator) -> bool:
    """Whether this is the rest of an RMS norm that eager code spells out."""
    return op.kind is Kind.ELEMENTWISE and op.kernels > NORM_CHAIN


def _groups(graph: Graph) -> list[tuple[Operator, list[Operator]]]:
    """Each forward operator with its gradients; those of a convolution stand behind its bias."""
    groups: list[tuple[Operator, list[Operator]]] = []
    convolution: list[Operator] = []
    for operator in graph.operators:
        if operator.direction is Direction.FORWARD:
            groups.append((operator, []))
            if operator.kind is Kind.CONV:
                convolution = groups[-1][1]
        elif operator.kind is Kind.CONV:
            convolution.append(operator)
        elif groups:
            groups[-1][1].append(operator)
    return groups


def _matrix(flow: Flow, op: Operator, backward: list[Operator]) -> Kept:
    """A linear layer or convolution keeps its input where its weight is trained."""
    width = flow.storage.activation
    weights = float(op.dims[1] * op.dims[2] * (op.dims[3] if op.kind is Kind.CONV else 1))
    elements = op.reads - weights
    saved = flow.storage.saved_input if op.kind is Kind.GEMM else width
    again = op.kind is flow.previous is Kind.GEMM and elements == flow.joint
    held = 0.0
    if any(o.direction is Direction.WEIGHT_GRADIENT for o in backward):
        # Several projections of one input keep it once; autocast casts a wider one for each.
        recast = flow.storage.autocast and flow.stream > saved
        held = (elements * saved if recast else 0.0) if again else flow.keep(elements, saved)
    behind_norm = flow.previous is Kind.LAYER_NORM
    flow.projected = (flow.projected if again else 0.0) + op.writes
    flow.joint = elements
    flow.fresh(op.writes, width)
    moved = (elements + op.writes) * width
    return Kept(op, held, moved, op.writes * width, weights, split=behind_norm)


def _product(flow: Flow, op: Operator, backward: list[Operator]) -> Kept:
    """A product of two activations keeps both."""
    m, n, k, batch = op.dims
    width = flow.storage.activation
    first = flow.keep(float(m * k * batch), width) if backward and flow.in_scores else 0.0
    if backward and not flow.in_scores:
        first = float(m * k * batch * width)
    held = first + k * n * batch * width if backward else 0.0
    scores = first if flow.in_scores else 0.0
    flow.in_scores = False
    flow.fresh(op.writes, width)
    return Kept(op, held, (op.reads + op.writes) * width, op.writes * width, scores=scores)


def _scanned(flow: Flow, op: Operator, backward: list[Operator]) -> Kept:
    """A part of a fused state-space scan: its first operator keeps what was projected."""
    width = flow.storage.activation
    held = flow.projected * width if op.kind is Kind.CONV else 0.0
    flow.fresh(op.writes, width)
    return Kept(op, held, 2 * op.writes * width, op.writes * width)


def _attention(flow: Flow, op: Operator, backward: list[Operator]) -> Kept:
    """Fused attention keeps queries, keys and values, its output and one FP32 value a row."""
    width = flow.storage.activation
    inputs = min(op.reads, flow.projected) if flow.projected else op.reads
    rows = op.dims[0] * op.dims[3]
    held = (inputs + op.writes) * width + rows * STATISTICS_BYTES if backward else 0.0
    flow.fresh(op.writes, width, kept=bool(backward))
    return Kept(op, held, (op.reads + 2 * op.writes) * width, op.writes * width)


def _softmax(flow: Flow, op: Operator, backward: list[Operator]) -> Kept:
    width = flow.storage.full
    flow.fresh(op.writes, width)
    held = flow.keep(op.writes, width) if backward else 0.0
    flow.in_scores = True
    return Kept(op, held, 2 * op.writes * width, op.writes * width, scores=held)


def _layer_norm(flow: Flow, op: Operator, backward: list[Operator]) -> Kept:
    rows, cols = op.dims
    width, elements = flow.storage.full, float(rows * cols)
    held = flow.keep(elements, width) + 2 * rows * STATISTICS_BYTES if backward else 0.0
    flow.fresh(elements, width)
    return Kept(op, held, 2 * elements * width, elements * width, split=True)


def _norm(flow: Flow, op: Operator, backward: list[Operator]) -> Kept:
    """Batch or instance norm: in the format of its input."""
    elements = float(op.dims[0] * op.dims[1])
    width = flow.bytes
    held = flow.keep(elements, width) if backward else 0.0
    flow.fresh(elements, width)
    return Kept(op, held, 2 * elements * width, elements * width)


def _group_norm(flow: Flow, op: Operator, backward: list[Operator]) -> Kept:
    """Group norm in FP32 under autocast: it keeps a wider copy of its input."""
    elements = float(op.dims[0] * op.dims[1])
    width = flow.storage.full
    held = flow.keep(elements, width) if backward else 0.0
    flow.fresh(elements, width)
    return Kept(op, held, 2 * elements * width, elements * width)


def _loss(flow: Flow, op: Operator, backward: list[Operator]) -> Kept:
    """Cross entropy keeps its log-softmax, a pointwise loss its difference.

    Its backward needs the gradient of the log-softmax and of the logits, beside the logits that
    the training loop still holds; Megatron-LM computes it in place and casts it.
    """
    storage = flow.storage
    width = storage.loss
    held = op.writes * width if backward else 0.0
    moved = storage.activation + (0 if storage.loss_in_place else 2 * width)
    flow.fresh(op.writes, width)
    return Kept(op, held, op.writes * moved, op.writes * width)


def _pool(flow: Flow, op: Operator, backward: list[Operator]) -> Kept:
    """Pooling over windows keeps its input and the place of each maximum; a global mean nothing."""
    width, out = flow.bytes, op.writes
    windows = bool(backward) and out > op.dims[1] * 2 and op.reads / out < GLOBAL_WINDOW
    held = flow.keep(op.reads, width) + out * INDEX_BYTES if windows else 0.0
    flow.fresh(out, width)
    return Kept(op, held, (op.reads + out) * width, out * width)


def _embedding(flow: Flow, op: Operator, backward: list[Operator]) -> Kept:
    width = flow.storage.full
    flow.fresh(op.writes, width)
    return Kept(op, op.dims[0] * INDEX_BYTES, 2 * op.writes * width, op.writes * width)


def _rnn(flow: Flow, op: Operator, backward: list[Operator]) -> Kept:
    """A recurrent layer keeps gates, cell and output of every time step."""
    steps, rows, hidden, gates = op.dims
    width, state = flow.storage.activation, float(steps * rows * hidden)
    held = state * (gates + 2) * width if backward else 0.0
    flow.fresh(state, width, kept=bool(backward))
    return Kept(op, held, 2 * op.writes * width, state * width)


def _elementwise(flow: Flow, op: Operator, backward: list[Operator]) -> Kept:
    """Told apart by reads and writes of an element, each way, as MemoryLayers emits them."""
    elements = float(op.dims[-1])
    reads, writes = op.reads / elements, op.writes / elements
    back = sum(o.reads for o in backward) / elements
    width = flow.bytes or flow.storage.activation
    held, kept, split, dropped = 0.0, False, flow.in_norm, False
    if abs(writes - DROPOUT_WRITES) < 1e-6:
        held, dropped = elements, True
        split = flow.previous in (Kind.GEMM, Kind.EMBEDDING)
    elif reads == back == 2 and backward:
        width = flow.stream
    elif flow.previous is Kind.BATCHED_GEMM and reads == writes:
        pass  # scores are scaled
    elif (reads, writes, back) == (1, 1, 2):
        held, kept = _activation(flow, elements, width)
    elif reads == 1 and back == GATE_READS:
        held = elements * width
    elif back > writes and writes != ROTARY_WRITES:
        more = GELU_CHAIN - 1 if writes > ROTARY_WRITES else back == reads + 1 == 3
        held = flow.keep(elements, width) + more * elements * width
    scores = held if flow.in_scores else 0.0
    in_place = not backward and flow.kept  # a bias or a mask is added where the tensor lies
    if not in_place:
        flow.fresh(elements, width, kept=kept)
    return Kept(
        op,
        held,
        2 * elements * width,
        elements * width,
        split=split,
        scores=scores if dropped else 0.0,
    )


def _activation(flow: Flow, elements: float, width: int) -> tuple[float, bool]:
    """ReLU keeps its result, in the place of its input; a smooth function its input."""
    linear = flow.previous in (Kind.GEMM, Kind.LAYER_NORM, Kind.ATTENTION)
    if flow.relu_linears if linear else not flow.smooth:
        return elements * width, True
    return flow.keep(elements, width), False


Rule = Callable[[Flow, Operator, list[Operator]], Kept]
_RULES: Mapping[Kind, Rule] = {
    Kind.GEMM: _matrix,
    Kind.CONV: _matrix,
    Kind.BATCHED_GEMM: _product,
    Kind.ATTENTION: _attention,
    Kind.SOFTMAX: _softmax,
    Kind.LAYER_NORM: _layer_norm,
    Kind.BATCH_NORM: _norm,
    Kind.INSTANCE_NORM: _norm,
    Kind.GROUP_NORM: _group_norm,
    Kind.LOSS: _loss,
    Kind.POOL: _pool,
    Kind.EMBEDDING: _embedding,
    Kind.RNN: _rnn,
}
