"""Fewer rows where one source swept one operator densely; rare operators stay whole."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .conventions import parse_params
from .tables import OperatorTable

# Rows kept of one (GPU, library, operator, direction, format, function); others keep all.
_KEEP = {
    "gemm": 1000,
    "batched_gemm": 500,
    "elementwise": 120,
    "layernorm": 300,
    "softmax": 300,
    "embedding": 100,
}


def thinned(table: OperatorTable) -> NDArray[np.intp]:
    """Indices of the rows to keep, spread evenly over the sizes of every group."""
    groups: dict[tuple[str, ...], list[int]] = {}
    functions = {text: _function(text) for text in np.unique(table.params).tolist()}
    columns = (table.gpu, table.library, table.op, table.direction, table.dtype)
    keys = zip(*(c.tolist() for c in columns), table.params.tolist(), strict=True)
    for row, (*key, params) in enumerate(keys):
        groups.setdefault((*key, functions[params]), []).append(row)
    kept = [_spread(table, np.array(rows), key[2], key[3]) for key, rows in groups.items()]
    return np.sort(np.concatenate(kept)) if kept else np.array([], dtype=np.intp)


def _function(params: str) -> str:
    return parse_params(params).get("func", "")


def _spread(
    table: OperatorTable, rows: NDArray[np.intp], op: str, direction: str
) -> NDArray[np.intp]:
    keep = _KEEP.get(op, len(rows))
    if len(rows) <= keep or direction != "fwd":
        return rows
    order = np.lexsort((table.id[rows], table.bytes[rows], table.flops[rows]))
    steps = np.linspace(0, len(rows) - 1, keep).round().astype(np.intp)
    chosen: NDArray[np.intp] = rows[order[steps]]
    return chosen
