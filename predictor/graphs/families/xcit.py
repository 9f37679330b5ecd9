"""Cross-covariance image transformers (El-Nouby et al., arXiv 2106.09681)."""

from __future__ import annotations

from ..builder import Feature, GraphBuilder
from . import Workload, family
from .image import conv_norm, image_input
from .vision_blocks import (
    class_attention,
    feed_forward,
    linear_classifier,
    residual,
    special_tokens,
    unit_length,
    weighted,
)

SINUSOIDS = 64  # Fourier features of a position: half for the row, half for the column
CLASS_LAYERS = 2


@family("xcit")
def xcit(
    b: GraphBuilder,
    work: Workload,
    *,
    layers: int,
    hidden: int,
    heads: int,
    patch: int = 16,
    tokens_norm: bool = True,
    classes: int = 1000,
) -> None:
    """Attention between channels, 3x3 convolutions between positions; class attention at the end.

    ``tokens_norm``: the last two layers norm all tokens, not only the class token.
    """
    x = _stem(b, work, hidden, patch)
    rows = b.batch_size * x.positions
    _fourier_positions(b, x)
    with b.repeat(layers):
        b.layer_norm(rows, hidden)
        _channel_attention(b, x, heads)
        residual(b, rows * hidden, hidden)
        b.layer_norm(rows, hidden)
        _local_interaction(b, x)
        residual(b, rows * hidden, hidden)
        b.layer_norm(rows, hidden)
        feed_forward(b, rows, hidden, 4 * hidden)
        residual(b, rows * hidden, hidden)
    tokens = x.positions + 1
    special_tokens(b, 1, tokens, hidden)
    with b.repeat(CLASS_LAYERS):
        _class_layer(b, work, tokens, hidden, heads, tokens_norm)
    b.layer_norm(b.batch_size * tokens, hidden)
    linear_classifier(b, hidden, classes)


def _stem(b: GraphBuilder, work: Workload, hidden: int, patch: int) -> Feature:
    """3x3 convolutions of stride 2, doubling the channels, down to one position per patch."""
    x = image_input(b, work)
    steps = patch.bit_length() - 1
    for step in range(steps):
        width = hidden >> (steps - 1 - step)
        x = conv_norm(b, x, width, 3, stride=2, act=step < steps - 1, first=step == 0)
    b.concat(x)
    return x


def _fourier_positions(b: GraphBuilder, x: Feature) -> None:
    """Sines of the coordinates through a 1x1 convolution, once for the batch."""
    b.elementwise(x.positions * SINUSOIDS, kernels=25, backward_writes=0)
    b.linear(x.positions, SINUSOIDS, x.channels, data_gradient=False)
    b.add(x)


def _channel_attention(b: GraphBuilder, x: Feature, heads: int) -> None:
    """Scores between the channels of a head, from queries and keys of unit length."""
    width, rows = x.channels, b.batch_size * x.positions
    head, groups = width // heads, b.batch_size * heads
    b.parameters(heads)
    b.linear(rows, width, 3 * width)
    for _ in range(2):
        unit_length(b, groups * head, x.positions)
    b.batched_matmul(groups, head, head, x.positions)
    b.elementwise(groups * head * head, backward_reads=3, backward_kernels=2)
    b.softmax(groups * head, head)
    b.batched_matmul(groups, head, x.positions, head)
    b.concat(rows * width)
    b.linear(rows, width, width)


def _local_interaction(b: GraphBuilder, x: Feature) -> None:
    b.concat(x)
    b.conv(x, x.channels, 3, groups=x.channels, bias=True)
    b.activation(x)
    b.batch_norm(x)
    b.conv(x, x.channels, 3, groups=x.channels, bias=True)
    b.concat(x)


def _class_layer(
    b: GraphBuilder, work: Workload, tokens: int, hidden: int, heads: int, tokens_norm: bool
) -> None:
    rows = b.batch_size * tokens
    b.layer_norm(rows, hidden)
    class_attention(b, work, tokens, hidden, heads)
    b.concat(rows * hidden)
    residual(b, rows * hidden, hidden)
    b.layer_norm(rows if tokens_norm else b.batch_size, hidden)
    feed_forward(b, b.batch_size, hidden, 4 * hidden)
    weighted(b, b.batch_size * hidden, hidden)
    b.concat(rows * hidden)
    b.add(rows * hidden)
