"""What autograd keeps of a forward pass until its backward pass, read off the operator graph.

The rules are those of torch's ``derivatives.yaml``: a matrix product or convolution keeps its
input (its weight is counted elsewhere), a norm its input and statistics, softmax and ReLU their
result, GELU and SiLU their input, dropout a mask of one byte, max pooling indices of eight, a copy
or an addition nothing. A tensor that two operators keep in the same format is stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...graphs.operator import FORWARD, WEIGHT_GRADIENT, Graph, Kind, Operator
from ..autocast import weights_of
from ..job_graph import SPELT_NORM, Storage


@dataclass(slots=True)
class Kept:
    """One forward operator: bytes one instance keeps, and the bytes its backward needs on top.

    ``scores`` is the part of ``bytes`` that holds attention scores; ``split`` marks what sequence
    parallelism divides among the tensor-parallel GPUs; ``weights`` are elements of the weights a
    matrix product multiplies; ``output`` is bytes of the result.
    """

    operator: Operator
    bytes: float
    transient: float
    output: float = 0.0
    weights: float = 0.0
    split: bool = False
    scores: float = 0.0


@dataclass(slots=True)
class Flow:
    """The tensor that flows from operator to operator, as the walk knows it."""

    storage: Storage
    stream: int = 0
    bytes: int = 0
    elements: float = 0.0
    kept: bool = False
    previous: Kind | None = None
    in_scores: bool = False
    in_norm: bool = False
    projected: float = 0.0
    joint: float = 0.0
    sizes: set[float] = field(default_factory=set)

    def fresh(self, elements: float, width: int, *, kept: bool = False) -> None:
        """A new current tensor of ``width`` bytes an element, kept by its maker or by nobody."""
        self.elements, self.bytes, self.kept = elements, width, kept
        if kept:
            self.sizes.add(elements)

    def keep(self, elements: float, width: int) -> float:
        """Bytes to keep a tensor in this format: 0 where an operator before keeps it already."""
        current = abs(self.elements - elements) < 0.5
        if current and self.kept and self.bytes == width:
            return 0.0
        earlier = not current and elements in self.sizes
        if earlier and (self.stream == width or not self.storage.autocast):
            return 0.0  # a branch of an earlier tensor, not cast for this operator
        self.sizes.add(elements)
        if current and self.bytes == width:
            self.kept = True
        return elements * width


INDEX_BYTES = 8  # torch indices are int64
STATISTICS_BYTES = 4  # FP32 log-sum-exp of attention, mean or deviation of a norm
# What autograd keeps of pointwise functions, by torch's names without marks of variants.
RESULT_KEPT = frozenset({"elu", "exp", "leaky_relu", "relu", "sigmoid", "sqrt", "tanh"})
BOTH_KEPT = frozenset({"mul", "div"})
NOTHING_KEPT = frozenset({"add", "cat", "rotary", "scale", "sub", "upsample"})
DROPPED = frozenset({"dropout", "native_dropout", "bernoulli"})
SPELT_GELU = "spelt_gelu"
SPELT_GELU_TENSORS = 4  # input, half of it, tanh, 1 + tanh
GLOBAL_POOLS = frozenset({"mean"})
# A scan that is one kernel from convolution to norm, which computes again what lies between
# (mamba_split_conv1d_scan_combined, arXiv 2405.21060).
FUSED_SCAN = "selective_scan"


def kept_by(graph: Graph, storage: Storage) -> tuple[Kept, ...]:
    """Every forward operator of a graph, in order, with what it keeps."""
    flow = Flow(storage, bytes=storage.full)
    normed = any(o.kind is Kind.LAYER_NORM for o in graph.operators)
    flow.stream = storage.full if normed else storage.activation
    found = []
    groups = _groups(graph)
    for (forward, backward), following in zip(groups, [*groups[1:], None], strict=True):
        if forward.kind is Kind.ELEMENTWISE and following and following[0].kind is Kind.LOSS:
            backward = []  # a bias or a copy of the logits: the loss keeps its own result
        flow.in_norm = flow.previous is Kind.LAYER_NORM and forward.function == SPELT_NORM
        scanned = forward.function == FUSED_SCAN
        rule = _scanned if scanned else _RULES.get(forward.kind, _elementwise)
        found.append(rule(flow, forward, backward))
        if not flow.in_norm:
            flow.previous = forward.kind
    return tuple(found)


def _groups(graph: Graph) -> list[tuple[Operator, list[Operator]]]:
    """Each forward operator with its gradients; those of a convolution stand behind its bias."""
    groups: list[tuple[Operator, list[Operator]]] = []
    convolution: list[Operator] = []
    for operator in graph.operators:
        if operator.direction is FORWARD:
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
    weights = weights_of(op)
    elements = op.reads - weights
    saved = flow.storage.saved_input if op.kind is Kind.GEMM else width
    again = op.kind is flow.previous is Kind.GEMM and elements == flow.joint
    held = 0.0
    if any(o.direction is WEIGHT_GRADIENT for o in backward):
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
    """Batch or instance norm in the format of its input; group norm keeps FP32 under autocast."""
    elements = float(op.dims[0] * op.dims[1])
    width = flow.storage.full if op.kind is Kind.GROUP_NORM else flow.bytes
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
    windows = bool(backward) and op.function not in GLOBAL_POOLS
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
    """By the function it came from; one without a name keeps what its backward reads again."""
    elements = float(op.dims[-1])
    name = op.function.rstrip("_")
    width = flow.stream if name == "add" and backward else flow.bytes or flow.storage.activation
    again = sum(o.reads for o in backward) - elements  # beside the gradient
    held, kept, split, scores = 0.0, False, flow.in_norm, 0.0
    if name in DROPPED:
        held = elements
        split = flow.previous in (Kind.GEMM, Kind.EMBEDDING)
        scores = held if flow.in_scores else 0.0
    elif name in NOTHING_KEPT or not backward or again < elements or not op.writes:
        pass
    elif name in RESULT_KEPT:
        held, kept = elements * width, True
    elif name in BOTH_KEPT:
        both = min(op.reads, again)
        # One value a channel gates a branch, which nobody else keeps.
        first = flow.keep(elements, width) if both >= 2 * elements else elements * width
        held = first + (both - elements) * width
    else:
        chain = SPELT_GELU_TENSORS - 1 if name == SPELT_GELU else 0
        held = flow.keep(elements, width) + chain * elements * width
    in_place = not op.writes or (not backward and flow.kept)  # a sum going back; a bias or mask
    if not in_place:
        flow.fresh(elements, width, kept=kept)
    moved = 2 * elements * width
    return Kept(op, held, moved, elements * width, split=split, scores=scores)


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
    Kind.GROUP_NORM: _norm,
    Kind.LOSS: _loss,
    Kind.POOL: _pool,
    Kind.EMBEDDING: _embedding,
    Kind.RNN: _rnn,
}
