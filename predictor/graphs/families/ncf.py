"""Neural collaborative filtering (NeuMF): matrix factorisation beside a multi-layer perceptron.

He et al. arXiv 1708.05031.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ..builder import GraphBuilder
from . import Workload, family


@family("ncf")
def ncf(
    b: GraphBuilder,
    work: Workload,
    *,
    users: int = 138493,
    items: int = 26744,
    mf_dim: int = 64,
    mlp_layers: Sequence[int] = (256, 256, 128, 64),
) -> None:
    """One sample is a (user, item) pair; the first of ``mlp_layers`` is the two embeddings."""
    rows = b.batch_size
    half = mlp_layers[0] // 2
    b.input(3)
    for width in (mf_dim, half):
        b.embedding(rows, width, users)
        b.embedding(rows, width, items)
    b.multiply(rows * mf_dim)
    b.concat(rows * mlp_layers[0])
    for width, out in pairwise(mlp_layers):
        b.linear(rows, width, out)
        b.activation(rows * out)
        b.dropout(rows * out)
    joined = mf_dim + mlp_layers[-1]
    b.concat(rows * joined)
    b.linear(rows, joined, 1)
    b.regression_loss(rows)
