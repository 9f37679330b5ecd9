"""EdgeNeXt (Maaz et al., arXiv 2206.10589)."""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from ..registry import family
from ..workload import Workload
from .image import image_input

FOURIER_FEATURES = 64  # sines and cosines of both axes, before their projection


@family("edgenext")
def edgenext(
    b: GraphBuilder,
    work: Workload,
    *,
    depths: Sequence[int],
    widths: Sequence[int],
    heads: int = 4,
    kernels: Sequence[int] = (3, 5, 7, 9),
    scales: Sequence[int] = (2, 2, 3, 4),
    positions_in: int = 1,
    classes: int = 1000,
) -> None:
    """Four stages of depthwise convolutions; all but the first end in channel attention.

    ``scales``: channel groups of the split convolution per stage; ``positions_in``: the stage
    that adds Fourier position features.
    """
    x = image_input(b, work)
    x = b.conv(x, widths[0], 4, stride=4, padding=0, bias=True, data_gradient=False)
    _channel_norm(b, x)
    for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
        if stage:
            _channel_norm(b, x)
            x = b.conv(x, width, 2, stride=2, padding=0, bias=True)
        with b.repeat(depth - (stage > 0)):
            b.conv(x, width, kernels[stage], groups=width, bias=True)
            b.concat(x)  # channels into the last axis
            _feed_forward(b, x)
        if stage:
            _split_attention(b, x, scales[stage], heads, stage == positions_in)
    b.global_pool(x)
    b.layer_norm(b.batch_size, x.channels)
    b.linear(b.batch_size, x.channels, classes)
    b.cross_entropy(b.batch_size, classes)


def _channel_norm(b: GraphBuilder, x: Feature) -> None:
    b.concat(x)
    b.layer_norm(b.batch_size * x.positions, x.channels)


def _scaled_add(b: GraphBuilder, x: Feature) -> None:
    """A learned scale per channel, then the skip."""
    b.parameters(x.channels)
    b.elementwise(
        b.batch_size * x.elements, backward_reads=4, backward_writes=2, backward_kernels=3
    )
    b.add(x)


def _feed_forward(b: GraphBuilder, x: Feature) -> None:
    rows, width = b.batch_size * x.positions, x.channels
    b.layer_norm(rows, width)
    b.linear(rows, width, 4 * width)
    b.activation(rows * 4 * width)
    b.linear(rows, 4 * width, width)
    _scaled_add(b, x)


def _split_attention(b: GraphBuilder, x: Feature, scales: int, heads: int, positions: bool) -> None:
    part = x.with_channels(-(-x.channels // scales))
    for step in range(max(1, scales - 1)):
        if step:
            b.add(part)
        b.conv(part, part.channels, 3, groups=part.channels, bias=True)
    b.concat(x)
    if positions:
        _positions(b, x)
    b.concat(x)
    b.layer_norm(b.batch_size * x.positions, x.channels)
    _channel_attention(b, x, heads)
    _scaled_add(b, x)
    _feed_forward(b, x)


def _positions(b: GraphBuilder, x: Feature) -> None:
    """Fourier features of every position of every sample (14 small kernels), projected."""
    features = x.with_channels(FOURIER_FEATURES)
    b.elementwise(
        b.batch_size * features.elements, reads=4, writes=4, backward_writes=0, kernels=14
    )
    b.conv(features, x.channels, 1, bias=True, data_gradient=False)
    b.add(x)


def _channel_attention(b: GraphBuilder, x: Feature, heads: int) -> None:
    """Attention between channels: scores are ``head_dim`` x ``head_dim`` per head."""
    tokens, width = x.positions, x.channels
    rows, pairs, dim = b.batch_size * tokens, b.batch_size * heads, width // heads
    b.linear(rows, width, 3 * width)
    with b.repeat(2):  # queries and keys to unit length over the tokens
        b.elementwise(rows * width, reads=2, kernels=3, backward_reads=5, backward_kernels=6)
    b.batched_matmul(pairs, dim, dim, tokens)
    b.parameters(heads)
    b.elementwise(pairs * dim * dim, backward_reads=3, backward_kernels=3)
    b.softmax(pairs * dim, dim)
    b.batched_matmul(pairs, dim, tokens, dim)
    b.concat(x)
    b.linear(rows, width, width)
