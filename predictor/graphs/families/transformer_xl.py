"""Transformer-XL: segment recurrence, relative attention, adaptive embedding and softmax.

Dai et al. arXiv 1901.02860; adaptive softmax: Grave et al. arXiv 1609.04309. One sample is one
segment of ``work.tokens`` targets (tgt_len) that also attends ``mem_len`` cached states.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil

from ..builder import GraphBuilder
from . import Workload, family
from .transformer import Block, feed_forward, norm, residual


@family("transformer_xl")
def transformer_xl(
    b: GraphBuilder,
    work: Workload,
    *,
    layers: int,
    hidden: int,
    heads: int,
    ffn: int,
    head_dim: int = 64,
    mem_len: int | None = None,
    vocab: int = 267735,
    cutoffs: Sequence[int] = (19997, 39997, 199997),
    div_val: int = 1,
    tail_shares: Sequence[float] = (0.022, 0.026, 0.003),
    attention_dropout: bool = False,
) -> None:
    """A language model over words in order of frequency.

    ``tail_shares`` is the share of the targets in each cluster behind the first; ``div_val``
    divides the embedding width from cluster to cluster; ``mem_len`` defaults to the segment.
    """
    target = work.tokens
    memory = target if mem_len is None else mem_len
    rows = b.batch_size * target
    block = Block.of(hidden, heads, ffn, head_dim=head_dim, activation="relu", inner_dropout=True)
    bounds = [0, *cutoffs, vocab]
    sizes = [high - low for low, high in pairwise(bounds)]
    shares = [1.0 - sum(tail_shares), *tail_shares]
    b.input(2 * target)
    _embed(b, rows, hidden, sizes, shares, div_val)
    b.parameters(2 * heads * head_dim, 2)
    b.dropout((target + memory) * hidden)
    with b.repeat(layers):
        _relative_attention(b, block, target, memory, attention_dropout)
        feed_forward(b, block, rows)
    b.dropout(rows * hidden)
    _adaptive_softmax(b, rows, hidden, sizes, tail_shares, div_val)


def _relative_attention(
    b: GraphBuilder, block: Block, target: int, memory: int, dropout: bool
) -> None:
    """Content scores plus position scores, the latter shifted to relative distances.

    Queries, keys and values are projected for memory and segment in one GEMM.
    """
    keys, width = target + memory, block.attention_width
    heads = b.batch_size * block.heads
    scores = heads * target * keys
    b.concat(b.batch_size * keys * block.hidden)
    b.linear(b.batch_size * keys, block.hidden, 3 * width, bias=False)
    b.linear(keys, block.hidden, width, bias=False)
    for _ in ("content bias", "position bias"):
        b.elementwise(b.batch_size * target * width, reads=1, backward_reads=1)
    b.batched_matmul(heads, target, keys, block.head_dim)
    b.batched_matmul(heads, target, keys, block.head_dim)
    b.elementwise(scores, kernels=2, reads=2, writes=2, backward_reads=2, backward_writes=2)
    b.add(scores)
    b.elementwise(scores, backward_reads=1)
    b.elementwise(scores, backward_reads=1)
    b.softmax(heads * target, keys)
    if dropout:
        b.dropout(scores)
    b.batched_matmul(heads, target, block.head_dim, keys)
    b.elementwise(b.batch_size * target * width, backward_reads=1)
    b.linear(b.batch_size * target, width, block.hidden, bias=False)
    residual(b, block, b.batch_size * target)
    norm(b, block, b.batch_size * target)


def _embed(
    b: GraphBuilder,
    rows: int,
    hidden: int,
    sizes: Sequence[int],
    shares: Sequence[float],
    div_val: int,
) -> None:
    """One table, or one narrower table a cluster with a projection to ``hidden``."""
    if div_val == 1:
        b.embedding(rows, hidden, sum(sizes))
    else:
        for cluster, (size, share) in enumerate(zip(sizes, shares, strict=True)):
            here, width = ceil(rows * share), hidden // div_val**cluster
            b.elementwise(rows, kernels=4, reads=4, writes=2, backward_writes=0)
            b.embedding(here, width, size)
            b.linear(here, width, hidden, bias=False)
            b.elementwise(here * hidden, backward_reads=1)
    b.elementwise(rows * hidden, backward_reads=1)
    b.dropout(rows * hidden)


def _adaptive_softmax(
    b: GraphBuilder,
    rows: int,
    hidden: int,
    sizes: Sequence[int],
    tail_shares: Sequence[float],
    div_val: int,
) -> None:
    """Most frequent words and cluster logits at every position, each tail where it is due.

    Word weights are tied to the embedding; so are the projections, but for the first.
    """
    tails = len(tail_shares)
    b.parameters(tails * hidden + tails + sum(sizes), 3)
    if div_val != 1:
        b.linear(rows, hidden, hidden, bias=False)
    _logits(b, rows, hidden, sizes[0] + tails)
    for cluster, (size, share) in enumerate(zip(sizes[1:], tail_shares, strict=True), start=1):
        here, width = ceil(rows * share), hidden // div_val**cluster
        b.elementwise(rows, kernels=4, reads=4, writes=2, backward_writes=0)
        b.elementwise(here * hidden, backward_reads=1)
        if div_val != 1:
            b.linear(here, hidden, width, bias=False, shared=True)
        _logits(b, here, width, size)


def _logits(b: GraphBuilder, rows: int, width: int, classes: int) -> None:
    b.concat(classes * width)
    b.linear(rows, width, classes, bias=False, shared=True)
    b.elementwise(rows * classes, backward_reads=1)
    b.cross_entropy(rows, classes)
