"""What a row of an operator table means: its shape, its FLOPs and the bytes it must move.

Directions are ``fwd``, ``bwd_data`` and ``bwd_weight`` (one gradient, the FLOPs of the forward)
and ``bwd`` (the whole backward: both gradients, twice the FLOPs, of a matrix operator).
FLOPs count a multiply-add as two, convolutions algorithmically (no Winograd credit). Bytes are
the tensors an unfused kernel reads and writes once each, at the size of the row's format:

- ``gemm``, ``batched_gemm``: A[m,k], B[k,n], C[m,n]; ``composite`` adds a vocabulary
  cross-entropy over C (two reads, one write)
- ``conv2d``: input, weight, output; ``pool``: input and output (``bwd``: output twice, input)
- ``batchnorm``: 3 tensors forward, 5 backward; ``layernorm`` 2 and 4; ``softmax`` 2 and 3,
  one half read where the causal kernel skips the upper triangle
- ``elementwise``: ``operands`` reads and a write; dropout a one-byte mask; see ``_TENSORS``
- ``embedding``: row read and written; ``bwd`` two reads and a write, and the table once
- ``attention`` (fused): q, k, v, out; FLOPs halve when causal; ``bwd`` is 2.5 times the forward
  FLOPs (recomputation) and moves q, k, v, out and their gradients
- ``rnn``: the recurrent GEMMs of all steps (the input GEMM is excluded by the source)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from .storage import shipped_yaml

Floats = NDArray[np.float64]
Texts = NDArray[np.str_]
Dims = Mapping[str, Floats]
TABLES = shipped_yaml("conventions.yaml")
_Rule = Callable[[Dims, Texts, Texts, Floats], tuple[Floats, Floats]]


# Share of the bytes a fused kernel cannot avoid where the convention counts a second pass.
FUSED_SHARE: Mapping[tuple[str, str], float] = {
    ("batchnorm", "fwd"): 2 / 3,
    ("batchnorm", "bwd"): 3 / 5,
    ("layernorm", "bwd"): 3 / 4,
}
# The numbers of a stored `shape` cell, in order, by operator.
SHAPE_FIELDS = {op: tuple(names) for op, names in TABLES["shapes"].items()}
DIM_FIELDS = tuple(dict.fromkeys(name for names in SHAPE_FIELDS.values() for name in names))
MATMUL_OPS = frozenset({"gemm", "batched_gemm", "composite", "conv2d", "attention", "rnn"})
DIRECTIONS = ("fwd", "bwd", "bwd_data", "bwd_weight")
DTYPE_BYTES: Mapping[str, float] = TABLES["dtype_bytes"]
GATES: Mapping[str, int] = {"lstm": 4, "gru": 3, "vanilla": 1}

# Elementwise functions whose (reads, writes, mask bytes) per element are not operands + 1 write
# forward, and one more read backward.
_TENSORS: Mapping[tuple[str, str], tuple[float, float, float]] = {
    ("dropout", "fwd"): (1, 1, 1),
    ("dropout", "bwd"): (1, 1, 1),
    ("bias_dropout_add", "fwd"): (2, 1, 1),
    ("bias_dropout_add", "bwd"): (1, 1, 1),
    ("silu_mul", "fwd"): (2, 1, 0),
    ("mul", "bwd"): (3, 2, 0),
}
# With one operand the other is a number, whose gradient is nothing: only dy is read backward.
_ARITHMETIC = frozenset({"add", "sub", "mul", "div", "truediv"})


def parse_params(text: str) -> dict[str, str]:
    """``k=v;k=v`` as a dictionary; a word without ``=`` maps to an empty string."""
    pairs = (part.partition("=") for part in text.split(";") if part)
    return {key: value for key, _, value in pairs}


def param(params: Texts, name: str, default: float) -> Floats:
    """A numeric parameter of every row."""
    unique, inverse = np.unique(params, return_inverse=True)
    parsed = (parse_params(str(text)).get(name, "") for text in unique)
    return np.array([float(v) if v else default for v in parsed])[inverse]


def fill_elements(op: Texts, dims: Dims) -> None:
    """Derive ``elements`` in place where rows and columns, or an image, imply it."""
    elements = dims["elements"]
    image = dims["in_n"] * dims["in_c"] * dims["in_h"] * dims["in_w"]
    for derived in (dims["rows"] * dims["cols"], np.where(op == "conv2d", np.nan, image)):
        np.copyto(elements, derived, where=np.isnan(elements))


def work(
    op: Texts, direction: Texts, dtype: Texts, params: Texts, dims: Dims
) -> tuple[Floats, Floats]:
    """FLOPs and bytes of every row by the conventions above, NaN where the shape does not tell."""
    flops = np.full(len(op), np.nan)
    moved = np.full(len(op), np.nan)
    size = np.array([DTYPE_BYTES.get(str(d), np.nan) for d in dtype], dtype=np.float64)
    for name in np.unique(op):
        rule = _RULES.get(str(name))
        if rule is None:
            continue
        rows = np.flatnonzero(op == name)
        part = {key: values[rows] for key, values in dims.items()}
        flops[rows], moved[rows] = rule(part, direction[rows], params[rows], size[rows])
    return flops, moved


def _gradients(direction: Texts) -> Floats:
    return np.where(direction == "bwd", 2.0, 1.0)


def _gemm(d: Dims, direction: Texts, params: Texts, size: Floats) -> tuple[Floats, Floats]:
    m, n, k, batch = d["m"], d["n"], d["k"], d["batch"]
    passes = _gradients(direction) * batch
    return 2 * m * n * k * passes, (m * k + k * n + m * n) * passes * size


def _composite(d: Dims, direction: Texts, params: Texts, size: Floats) -> tuple[Floats, Floats]:
    flops, moved = _gemm(d, direction, params, size)
    return flops, moved + 3 * d["m"] * d["n"] * d["batch"] * size


def _conv(d: Dims, direction: Texts, params: Texts, size: Floats) -> tuple[Floats, Floats]:
    out_h = np.floor((d["in_h"] + 2 * d["pad_h"] - d["kernel_h"]) / d["stride_h"]) + 1
    out_w = np.floor((d["in_w"] + 2 * d["pad_w"] - d["kernel_w"]) / d["stride_w"]) + 1
    weight = d["out_c"] * d["in_c"] / d["groups"] * d["kernel_h"] * d["kernel_w"]
    positions = d["in_n"] * out_h * out_w
    image = d["in_n"] * d["in_c"] * d["in_h"] * d["in_w"]
    passes = _gradients(direction)
    # A stride wider than the window (1x1, stride 2) never reads part of the input.
    window = d["kernel_h"] * d["kernel_w"] / (d["stride_h"] * d["stride_w"])
    moved = image * np.fmin(window, 1.0) + weight + positions * d["out_c"]
    return 2 * positions * weight * passes, moved * passes * size


def _pool(d: Dims, direction: Texts, params: Texts, size: Floats) -> tuple[Floats, Floats]:
    shrink = np.where(np.isnan(d["stride_h"]), 4.0, d["stride_h"] * d["stride_w"])
    out = d["elements"] / shrink
    return _none(d), (d["elements"] + out * _gradients(direction)) * size


def _norm(forward: float, backward: float) -> _Rule:
    def rule(d: Dims, direction: Texts, params: Texts, size: Floats) -> tuple[Floats, Floats]:
        tensors = np.where(direction == "fwd", forward, backward)
        return _none(d), tensors * d["elements"] * size

    return rule


def _softmax(d: Dims, direction: Texts, params: Texts, size: Floats) -> tuple[Floats, Floats]:
    read = np.where(np.char.find(params, "upper triangle skipped") >= 0, 0.5, 1.0)
    reads = np.where(direction == "fwd", 1.0, 2.0) * read
    return _none(d), (reads + 1.0) * d["elements"] * size


def _elementwise(d: Dims, direction: Texts, params: Texts, size: Floats) -> tuple[Floats, Floats]:
    keys, inverse = np.unique(np.char.add(np.char.add(direction, "|"), params), return_inverse=True)
    table = np.array([_traffic(*str(key).split("|", 1)) for key in keys]).reshape(-1, 3)
    tensors, mask, other = table[inverse].T
    return _none(d), d["elements"] * (tensors * size + mask + other)


def _traffic(direction: str, params: str) -> tuple[float, float, float]:
    """Tensors at the row's format, mask bytes, and bytes at the other format of a cast."""
    parsed = parse_params(params)
    function, operands = parsed.get("func", ""), float(parsed.get("operands", "1"))
    default = (operands + (direction != "fwd"), 1.0, 0.0)
    reads, writes, mask = _TENSORS.get((function, direction), default)
    if function in _ARITHMETIC and operands == 1:
        reads, writes, mask = 1.0, 1.0, 0.0
    if "dtype_cast" in parsed:
        source = 2.0 if parsed["dtype_cast"].startswith("c10::") else 4.0
        return writes, mask, source
    return reads + writes, mask, 0.0


def _embedding(d: Dims, direction: Texts, params: Texts, size: Floats) -> tuple[Floats, Floats]:
    back = direction != "fwd"
    table = np.nan_to_num(param(params, "vocab", 0.0) * d["cols"])
    tensors = np.where(back, 3.0, 2.0)
    # With position embedding and dropout in the timed block: one more gather, an addition and
    # dropout forward; dropout and the second table's gradient backward.
    fused = np.char.find(params, "includes=word+position+dropout") >= 0
    tensors = tensors + np.where(fused, np.where(back, 5.0, 7.0), 0.0)
    return _none(d), (tensors * d["elements"] + np.where(back, table, 0.0)) * size


def _attention(d: Dims, direction: Texts, params: Texts, size: Floats) -> tuple[Floats, Floats]:
    causal = param(params, "causal", 0.0) > 0
    span = np.fmin(param(params, "window", np.inf), np.where(causal, 0.5, 1.0) * d["seq_len"])
    value_dim = param(params, "head_dim_v", np.nan)
    value_dim = np.where(np.isnan(value_dim), d["head_dim"], value_dim)
    width = d["head_dim"] + value_dim
    back = direction != "fwd"
    queries = d["batch"] * d["heads"] * d["seq_len"]
    flops = 2 * queries * span * width * np.where(back, 2.5, 1.0)
    kv_heads = param(params, "kv_heads", np.nan)
    kv_heads = np.where(np.isnan(kv_heads), d["heads"], kv_heads)
    tensors = (queries + d["batch"] * kv_heads * d["seq_len"]) * width
    return flops, tensors * np.where(back, 2.0, 1.0) * size


def _rnn(d: Dims, direction: Texts, params: Texts, size: Floats) -> tuple[Floats, Floats]:
    hidden = param(params, "hidden", np.nan)
    layers = param(params, "layers", 1.0)
    gates = rnn_gates(params)
    state = d["seq_len"] * d["batch"] * hidden
    passes = _gradients(direction) * layers
    moved = gates * hidden**2 + (gates + 4) * state
    return 2 * state * hidden * gates * passes, moved * passes * size


def rnn_gates(params: Texts) -> Floats:
    """GEMMs a recurrent cell does each step, NaN for other rows."""
    unique, inverse = np.unique(params, return_inverse=True)
    cells = (parse_params(str(text)).get("cell", "") for text in unique)
    return np.array([GATES.get(cell, np.nan) for cell in cells], dtype=np.float64)[inverse]


def _none(d: Dims) -> Floats:
    return np.zeros(len(d["elements"]))


_RULES: Mapping[str, _Rule] = {
    "gemm": _gemm,
    "batched_gemm": _gemm,
    "composite": _composite,
    "conv2d": _conv,
    "pool": _pool,
    "batchnorm": _norm(3.0, 5.0),
    "layernorm": _norm(2.0, 4.0),
    "softmax": _softmax,
    "elementwise": _elementwise,
    "embedding": _embedding,
    "reduction": lambda d, _direction, _params, size: (_none(d), d["elements"] * size),
    "attention": _attention,
    "rnn": _rnn,
}
