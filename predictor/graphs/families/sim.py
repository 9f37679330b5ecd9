"""Search-based interest model: attention over a long history, DIEN over the short one.

Pi et al. arXiv 2006.05639; Zhou et al. arXiv 1809.03672 (DIEN).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import GraphBuilder
from . import Workload, family


@family("sim")
def sim(
    b: GraphBuilder,
    work: Workload,
    *,
    table_rows: Sequence[int],
    item_features: int = 2,
    emb_dim: int = 16,
    long_history: int = 90,
    short_history: int = 10,
    best_items: int = 50,
    stage_one: Sequence[int] = (200,),
    stage_two: Sequence[int] = (200, 80),
    auxiliary: Sequence[int] = (100, 50),
) -> None:
    """One sample is an impression with the user's history; histories share the item's tables."""
    rows, item, hidden = b.batch_size, item_features * emb_dim, 6 * emb_dim
    looked_up = long_history + 2 * short_history + 2
    b.input(item_features * looked_up + 2)
    for index, vocab in enumerate(table_rows):
        times = looked_up if index < item_features else 2
        b.embedding(rows * times, emb_dim, vocab)
    b.elementwise(rows * (long_history + 2 * short_history) * item, reads=1, kernels=3)  # masks
    _attend(b, rows, long_history, item)
    _classifier(b, rows, 2 * item + emb_dim, stage_one, slopes=True)
    b.elementwise(rows * long_history, kernels=4, backward_writes=0)  # best items: a sort
    b.concat(rows * best_items * item)
    _attend(b, rows, best_items, item)
    b.elementwise(rows * item, reads=best_items, backward_writes=best_items, kernels=3)  # mean
    _evolution(b, rows, short_history, item, hidden)
    pairs = rows * (short_history - 1)
    for negative in (False, True):
        b.concat(pairs * (item + hidden))
        _classifier(b, pairs, item + hidden, auxiliary, shared=negative)
    _classifier(b, rows, 3 * item + hidden + emb_dim, stage_two, slopes=True)
    b.regression_loss(rows, kernels=16)


def _attend(b: GraphBuilder, rows: int, length: int, width: int) -> None:
    """Dot products of the target with the history, softmax, weighted sum: all element-wise."""
    cells = rows * length
    b.elementwise(cells * width, backward_reads=2, backward_writes=2)
    b.elementwise(cells, reads=width, backward_reads=1, backward_writes=width)
    b.elementwise(cells, reads=2, kernels=2)  # mask
    b.softmax(rows, length)
    _weigh(b, cells, width)


def _weigh(b: GraphBuilder, cells: int, width: int) -> None:
    b.elementwise(cells * width, backward_reads=2, backward_writes=2)
    b.elementwise(cells, reads=width, backward_reads=1, backward_writes=width)


def _evolution(b: GraphBuilder, rows: int, steps: int, width: int, hidden: int) -> None:
    """A fused GRU, an attention network, and an unfused GRU whose gate the attention scales."""
    b.rnn(steps, width, hidden, gates=3)
    cells = rows * steps
    b.linear(rows, width, hidden)
    b.parameters(hidden)  # slopes of the PReLU
    b.elementwise(rows * hidden)
    b.concat(4 * cells * hidden)
    b.elementwise(2 * cells * hidden, kernels=2)  # difference and product
    _classifier(b, cells, 4 * hidden, (80, 40))
    b.softmax(rows, steps)
    b.rnn(steps, hidden, hidden, gates=3, bias_tensors=1, fused=False)


def _classifier(
    b: GraphBuilder,
    rows: int,
    width: int,
    hidden: Sequence[int],
    *,
    slopes: bool = False,
    shared: bool = False,
) -> None:
    """Hidden layers with sigmoid, or with PReLU and its learned ``slopes``; one score."""
    for out in hidden:
        b.linear(rows, width, out, shared=shared)
        b.activation(rows * out)
        if slopes:
            b.parameters(out)
        width = out
    b.linear(rows, width, 1, shared=shared)
