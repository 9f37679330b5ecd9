"""Wide & Deep: a linear model on sparse fields beside a perceptron on their embeddings.

Cheng et al. arXiv 1606.07792. Two published set-ups: Criteo (equal embedding widths, tables by
row) and Outbrain (a table for each column, dense gradients).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import GraphBuilder
from . import Workload, family
from .dlrm import mlp


@family("wide_and_deep")
def wide_and_deep(
    b: GraphBuilder,
    work: Workload,
    *,
    hidden_layers: int = 5,
    hidden: int = 1024,
    dense_fields: int = 13,
    tables: Sequence[Sequence[int]] = (),
    deep_vocab: int | None = None,
    deep_embedding_vec: int = 16,
    deep_sparse_fields: int = 26,
    wide_sparse_fields: int = 2,
) -> None:
    """One sample is an impression; ``tables`` are (width, rows) unless ``deep_vocab`` is given."""
    rows = b.batch_size
    if deep_vocab is None:
        width = dense_fields + _columns(b, rows, tables, dense_fields)
    else:
        width = dense_fields + deep_sparse_fields * deep_embedding_vec
        b.input(dense_fields + deep_sparse_fields + wide_sparse_fields + 1)
        b.embedding(rows * wide_sparse_fields, 1, deep_vocab, sparse=True)
        b.embedding(rows * deep_sparse_fields, deep_embedding_vec, deep_vocab, sparse=True)
    b.elementwise(rows, reads=wide_sparse_fields)
    b.concat(rows * width)
    dropout = deep_vocab is not None
    mlp(b, rows, (width, *[hidden] * hidden_layers, 1), last_activation=False, dropout=dropout)
    b.add(rows)
    b.regression_loss(rows)


def _columns(b: GraphBuilder, rows: int, tables: Sequence[Sequence[int]], dense_fields: int) -> int:
    """Outbrain: every column has its table and its linear weights; the width of all tables."""
    b.input(dense_fields + len(tables) + 1)
    for width, vocab in tables:
        b.embedding(rows, width, vocab)
    with b.repeat(len(tables)):
        b.embedding(rows, 1, 0)
    b.parameters(sum(vocab for _, vocab in tables) + dense_fields + 1, len(tables) + 2)
    return sum(width for width, _ in tables)
