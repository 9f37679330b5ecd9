"""Click-through models on embedding tables: DLRM and DCNv2.

Naumov et al. arXiv 1906.00091 (pairwise dot interaction); Wang et al. arXiv 2008.13535 (low-rank
cross network). Tables are updated by row: their gradients are sparse.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ..builder import GraphBuilder
from . import Workload, family


@family("dlrm")
def dlrm(
    b: GraphBuilder,
    work: Workload,
    *,
    table_rows: Sequence[int],
    emb_dim: int = 128,
    dense_fields: int = 13,
    bottom_mlp: Sequence[int] = (512, 256, 128),
    top_mlp: Sequence[int] = (1024, 1024, 512, 256, 1),
    dcn_layers: int = 0,
    low_rank: int = 512,
    ids_per_sample: int | None = None,
) -> None:
    """One sample is an impression; ``ids_per_sample`` exceeds the tables where they are multi-hot.

    ``dcn_layers=0`` is DLRM's pairwise dot, otherwise DCNv2's cross network.
    """
    rows, tables = b.batch_size, len(table_rows)
    ids = ids_per_sample or tables
    b.input(dense_fields + ids + 1)
    b.embedding(rows * ids, emb_dim, sum(table_rows), sparse=True)
    if ids > tables:  # sum of the ids of one table
        b.elementwise(rows * tables * emb_dim, reads=ids / tables, backward_reads=1)
    mlp(b, rows, (dense_fields, *bottom_mlp), data_gradient=False)
    b.concat(rows * (tables + 1) * emb_dim)
    if dcn_layers:
        width = (tables + 1) * emb_dim
        _cross(b, rows, width, dcn_layers, low_rank)
    else:
        width = _dot(b, rows, tables + 1, emb_dim)
    mlp(b, rows, (width, *top_mlp), last_activation=False)
    b.regression_loss(rows)


def mlp(
    b: GraphBuilder,
    rows: int,
    widths: Sequence[int],
    *,
    data_gradient: bool = True,
    last_activation: bool = True,
    dropout: bool = False,
) -> None:
    """Linear layers with ReLU between; the bias gradient and ReLU are kernels of their own."""
    last = len(widths) - 2
    for layer, (width, out) in enumerate(pairwise(widths)):
        b.linear(rows, width, out, data_gradient=data_gradient or layer > 0)
        if layer < last or last_activation:
            b.activation(rows * out)
            if dropout:
                b.dropout(rows * out)


def _dot(b: GraphBuilder, rows: int, vectors: int, dim: int) -> int:
    """Products of all pairs, their lower triangle beside the dense vector; the width, padded."""
    b.batched_matmul(rows, vectors, vectors, dim)
    pairs = vectors * (vectors - 1) // 2
    width = -(-(pairs + dim) // 8) * 8
    b.concat(rows * width)
    return width


def _cross(b: GraphBuilder, rows: int, width: int, layers: int, rank: int) -> None:
    """x0 * (U V x + bias) + x for every layer."""
    with b.repeat(layers):
        b.linear(rows, width, rank, bias=False)
        b.linear(rows, rank, width)
        b.multiply(rows * width)
        b.add(rows * width)
