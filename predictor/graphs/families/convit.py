"""ConViT: attention that starts as a convolution (d'Ascoli et al., arXiv 2103.10697)."""

from __future__ import annotations

from ..builder import GraphBuilder
from ..registry import family
from ..workload import Workload
from .vision_blocks import (
    encoder_layer,
    feed_forward,
    linear_classifier,
    patches,
    positions,
    special_tokens,
)


@family("convit")
def convit(
    b: GraphBuilder,
    work: Workload,
    *,
    hidden: int,
    heads: int,
    layers: int = 12,
    local_layers: int = 10,
    patch: int = 16,
    classes: int = 1000,
) -> None:
    """Scores of the first ``local_layers`` are gated with a softmax over relative positions."""
    tokens = patches(b, work, hidden, patch).positions
    positions(b, b.batch_size * tokens, tokens, hidden)
    with b.repeat(local_layers):
        rows = b.batch_size * tokens
        b.layer_norm(rows, hidden)
        _positional_attention(b, tokens, hidden, heads)
        b.add(rows * hidden)
        b.layer_norm(rows, hidden)
        feed_forward(b, rows, hidden, 4 * hidden)
        b.add(rows * hidden)
    tokens += 1
    special_tokens(b, 1, tokens, hidden)
    with b.repeat(layers - local_layers):
        encoder_layer(b, work, tokens, hidden, heads, bias=False)
    b.layer_norm(b.batch_size * tokens, hidden)
    linear_classifier(b, hidden, classes)


def _positional_attention(b: GraphBuilder, tokens: int, width: int, heads: int) -> None:
    """The map of distances to scores runs on every pair of every sample; never fused."""
    rows, pairs, head = b.batch_size * tokens, b.batch_size * tokens**2, width // heads
    groups = b.batch_size * heads
    b.linear(rows, width, 2 * width, bias=False)
    b.concat(2 * rows * width)
    b.linear(pairs, 3, heads, data_gradient=False)
    b.concat(pairs * heads)
    b.batched_matmul(groups, tokens, tokens, head)
    b.elementwise(pairs * heads, backward_reads=1)
    for _ in range(2):
        b.softmax(groups * tokens, tokens)
    b.parameters(heads)
    b.elementwise(
        pairs * heads,
        reads=4,
        writes=3,
        backward_reads=5,
        backward_writes=2,
        kernels=3,
        backward_kernels=6,
    )
    b.elementwise(pairs * heads, reads=2, kernels=2, backward_reads=4, backward_kernels=3)
    b.linear(rows, width, width, bias=False)
    b.concat(rows * width)
    b.batched_matmul(groups, tokens, head, tokens)
    b.concat(rows * width)
    b.linear(rows, width, width)
