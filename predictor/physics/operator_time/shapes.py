"""``Operator.dims`` of the rows of an operator table."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from profiles.conventions import param, rnn_gates
from profiles.tables import OperatorTable

from ...graphs.operator import Direction, Kind
from .work import DIMS, DIRECTION_CODE, Floats, Ints

# Table words -> kinds. A composite row times a GEMM and a loss together, so it prices neither.
KIND_OF = {
    "gemm": Kind.GEMM,
    "batched_gemm": Kind.BATCHED_GEMM,
    "conv2d": Kind.CONV,
    "attention": Kind.ATTENTION,
    "rnn": Kind.RNN,
    "batchnorm": Kind.BATCH_NORM,
    "layernorm": Kind.LAYER_NORM,
    "softmax": Kind.SOFTMAX,
    "elementwise": Kind.ELEMENTWISE,
    "reduction": Kind.ELEMENTWISE,
    "pool": Kind.POOL,
    "embedding": Kind.EMBEDDING,
}
# What a profiler marks in ``params``, as table words have no name for it: kinds of their own on a
# GPU. On a CPU the cells tell them apart.
KIND_MARKED = {
    "kind=groupnorm": Kind.GROUP_NORM,
    "kind=log_softmax": Kind.LOSS,
    "func=foreach_": Kind.OPTIMIZER,
    "func=fused_": Kind.OPTIMIZER,
}
# ``bwd`` is the whole backward: one operator of a memory-bound kind, two of a matrix kind.
DIRECTION_OF = {
    "fwd": Direction.FORWARD,
    "bwd": Direction.DATA_GRADIENT,
    "bwd_data": Direction.DATA_GRADIENT,
    "bwd_weight": Direction.WEIGHT_GRADIENT,
}
_DATA = DIRECTION_CODE[Direction.DATA_GRADIENT]
_WEIGHT = DIRECTION_CODE[Direction.WEIGHT_GRADIENT]


def dims_of(table: OperatorTable, kind: Kind, direction: Ints, rows: NDArray[np.intp]) -> Floats:
    """Zero-padded dims (len(rows), 6) of ``rows``, all of one kind; ``direction`` is theirs."""
    columns = _COLUMNS.get(kind, _flat)(table, direction, rows)
    dims = np.zeros((len(rows), DIMS))
    dims[:, : len(columns)] = np.stack(columns, axis=1)
    return dims


def _gemm(table: OperatorTable, direction: Ints, rows: NDArray[np.intp]) -> list[Floats]:
    m, n, k = table.m[rows], table.n[rows], table.k[rows]
    data, weight = direction == _DATA, direction == _WEIGHT
    return [np.where(weight, k, m), np.where(data, k, n), np.where(data, n, np.where(weight, m, k))]


def _batched(table: OperatorTable, direction: Ints, rows: NDArray[np.intp]) -> list[Floats]:
    return [*_gemm(table, direction, rows), table.batch[rows]]


def _conv(table: OperatorTable, direction: Ints, rows: NDArray[np.intp]) -> list[Floats]:
    def column(name: str) -> Floats:
        return np.asarray(getattr(table, name)[rows])

    groups = column("groups")
    inputs, outputs = column("in_c") / groups, column("out_c") / groups
    volume = column("kernel_h") * column("kernel_w")
    high = _positions(column("in_h"), column("pad_h"), column("kernel_h"), column("stride_h"))
    wide = _positions(column("in_w"), column("pad_w"), column("kernel_w"), column("stride_w"))
    rows_out = column("in_n") * high * wide
    rows_in = column("in_n") * column("in_h") * column("in_w")
    data, weight = direction == _DATA, direction == _WEIGHT
    return [
        np.where(weight, inputs * volume, np.where(data, rows_in, rows_out)),
        np.where(data, inputs, outputs),
        np.where(weight, rows_out, np.where(data, outputs, inputs) * volume),
        groups,
        volume,
        column("stride_h") * column("stride_w"),
    ]


def _positions(size: Floats, pad: Floats, kernel: Floats, stride: Floats) -> Floats:
    return np.floor((size + 2 * pad - kernel) / stride) + 1


def _attention(table: OperatorTable, direction: Ints, rows: NDArray[np.intp]) -> list[Floats]:
    length = table.seq_len[rows]
    return [length, length, table.head_dim[rows], table.batch[rows] * table.heads[rows]]


def _rnn(table: OperatorTable, direction: Ints, rows: NDArray[np.intp]) -> list[Floats]:
    params = table.params[rows]
    one_layer = np.where(param(params, "layers", 1.0) == 1, 1.0, np.nan)
    hidden = param(params, "hidden", np.nan) * one_layer
    return [table.seq_len[rows], table.batch[rows], hidden, rnn_gates(params)]


def _flat(table: OperatorTable, direction: Ints, rows: NDArray[np.intp]) -> list[Floats]:
    known = ~np.isnan(table.rows[rows] * table.cols[rows])
    return [
        np.where(known, table.rows[rows], 1.0),
        np.where(known, table.cols[rows], table.elements[rows]),
    ]


_COLUMNS: dict[Kind, Callable[[OperatorTable, Ints, NDArray[np.intp]], list[Floats]]] = {
    Kind.GEMM: _gemm,
    Kind.BATCHED_GEMM: _batched,
    Kind.CONV: _conv,
    Kind.ATTENTION: _attention,
    Kind.RNN: _rnn,
}
