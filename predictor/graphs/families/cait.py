"""Class-attention image transformers (Touvron et al., arXiv 2103.17239)."""

from __future__ import annotations

from ..builder import GraphBuilder
from . import Workload, family
from .vision_blocks import (
    class_attention,
    feed_forward,
    linear_classifier,
    patches,
    positions,
    residual,
)

CLASS_LAYERS = 2


@family("cait")
def cait(
    b: GraphBuilder,
    work: Workload,
    *,
    layers: int,
    hidden: int,
    heads: int,
    patch: int = 16,
    classes: int = 1000,
) -> None:
    """Talking-heads attention between patches; the class token joins in the last two layers."""
    tokens = patches(b, work, hidden, patch).positions
    rows = b.batch_size * tokens
    positions(b, rows, tokens, hidden)
    with b.repeat(layers):
        b.layer_norm(rows, hidden)
        _talking_heads(b, tokens, hidden, heads)
        residual(b, rows * hidden, hidden)
        b.layer_norm(rows, hidden)
        feed_forward(b, rows, hidden, 4 * hidden)
        residual(b, rows * hidden, hidden)
    b.parameters(hidden)
    with b.repeat(CLASS_LAYERS):
        b.concat((rows + b.batch_size) * hidden)
        b.layer_norm(rows + b.batch_size, hidden)
        class_attention(b, work, tokens + 1, hidden, heads)
        residual(b, b.batch_size * hidden, hidden)
        b.layer_norm(b.batch_size, hidden)
        feed_forward(b, b.batch_size, hidden, 4 * hidden)
        residual(b, b.batch_size * hidden, hidden)
    b.concat((rows + b.batch_size) * hidden)
    b.layer_norm(rows + b.batch_size, hidden)
    linear_classifier(b, hidden, classes)


def _talking_heads(b: GraphBuilder, tokens: int, width: int, heads: int) -> None:
    """Scores are mixed between heads by a linear map before and after the softmax; never fused."""
    rows, pairs = b.batch_size * tokens, b.batch_size * tokens**2
    groups, head = b.batch_size * heads, width // heads
    b.linear(rows, width, 3 * width)
    b.elementwise(rows * width, backward_reads=1)
    b.concat(3 * rows * width)
    b.batched_matmul(groups, tokens, tokens, head)
    for after_softmax in (False, True):
        if after_softmax:
            b.softmax(groups * tokens, tokens)
        b.concat(pairs * heads)
        b.linear(pairs, heads, heads)
        b.concat(pairs * heads)
    b.batched_matmul(groups, tokens, head, tokens)
    b.concat(rows * width)
    b.linear(rows, width, width)
