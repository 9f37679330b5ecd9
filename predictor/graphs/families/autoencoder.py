"""Autoencoders over the items a user liked: VAE-CF and the Recoder autoencoder.

Liang et al. arXiv 1802.05814 (multinomial likelihood, variational); Recoder (amoussawi/recoder):
one hidden layer, logistic loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ..builder import GraphBuilder
from ..operator import Direction, Kind
from . import Workload, family


@family("autoencoder")
def autoencoder(
    b: GraphBuilder,
    work: Workload,
    *,
    items: int,
    widths: Sequence[int],
    variational: bool,
    items_per_user: int,
    sparse_input: bool,
) -> None:
    """One sample is a user with ``items_per_user`` items.

    ``widths`` lead from the first hidden layer to the code. With ``sparse_input`` the first layer
    multiplies a sparse matrix.
    """
    rows = b.batch_size
    first, code = widths[0], widths[-1]
    b.input(2 * items_per_user)
    if sparse_input:
        _sparse_linear(b, rows, items_per_user, items, first)
    else:
        b.elementwise(rows * items, reads=2, writes=1, backward_writes=0, kernels=2)  # normalise
        b.elementwise(rows * items, writes=1.25, backward_writes=0, function="dropout")  # noise
        b.linear(rows, items, first, data_gradient=False)
    b.activation(rows * first)
    for width, out in pairwise(widths):
        doubled = 2 if variational and out == code else 1
        b.linear(rows, width, doubled * out)
        b.activation(rows * doubled * out)
    if variational:
        b.elementwise(rows * code, reads=3, backward_writes=2, kernels=4)  # sample the code
    for width, out in pairwise(reversed(widths)):
        b.linear(rows, width, out)
        b.activation(rows * out)
    b.linear(rows, first, items)
    if variational:
        b.cross_entropy(rows, items)
        b.multiply(rows * items)  # log-likelihood against the dense input
    else:
        b.regression_loss(rows * items, kernels=2)


def _sparse_linear(b: GraphBuilder, rows: int, ids: int, items: int, out: int) -> None:
    """Sparse x dense product: ``ids`` non-zeros a row gather and scatter rows of the weights."""
    b.parameters(items * out + out, 2)
    flops = 2.0 * rows * ids * out
    moved = float(rows * ids * out)
    b.emit(
        Kind.EMBEDDING,
        Direction.FORWARD,
        (rows * ids, out),
        flops=flops,
        reads=moved,
        writes=rows * out,
        kernels=2,
    )
    b.emit(
        Kind.EMBEDDING,
        Direction.WEIGHT_GRADIENT,
        (rows * ids, out),
        flops=flops,
        reads=moved,
        writes=moved + items * out,
        kernels=3,
    )
