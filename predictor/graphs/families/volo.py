"""VOLO: outlook attention on fine positions, then a transformer (Yuan et al. arXiv 2106.13112)."""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from ..registry import family
from ..workload import Workload
from .image import conv_norm, image_input
from .vision_blocks import (
    class_attention,
    encoder_layer,
    feed_forward,
    linear_classifier,
    residual,
    special_tokens,
)

WINDOW = 9  # an outlook spreads over 3x3 positions
CLASS_LAYERS = 2


@family("volo")
def volo(
    b: GraphBuilder,
    work: Workload,
    *,
    widths: Sequence[int],
    depths: Sequence[int],
    heads: Sequence[int],
    stem: int = 64,
    ffn_ratio: int = 3,
    classes: int = 1000,
) -> None:
    """Two sizes (``widths`` and ``heads`` of each); ``depths`` of outlookers and transformers.

    Every position classifies too (token labelling); the largest of each class is added.
    """
    x = _stem(b, work, stem, widths[0])
    with b.repeat(depths[0]):
        _outlooker(b, x, heads[0], ffn_ratio)
    x = b.conv(x, widths[1], 2, stride=2, padding=0, bias=True)
    b.parameters(x.elements)
    b.elementwise(b.batch_size * x.elements, backward_reads=1)
    width, tokens = x.channels, x.positions
    with b.repeat(sum(depths[1:])):
        encoder_layer(b, work, tokens, width, heads[1], hidden=ffn_ratio * width, bias=False)
    tokens += 1
    special_tokens(b, 1, tokens, width)
    with b.repeat(CLASS_LAYERS):
        b.layer_norm(b.batch_size * tokens, width)
        class_attention(b, work, tokens, width, heads[1], bias=False)
        residual(b, b.batch_size * width)
        b.layer_norm(b.batch_size, width)
        feed_forward(b, b.batch_size, width, ffn_ratio * width)
        residual(b, b.batch_size * width)
        b.concat(b.batch_size * tokens * width)
    b.layer_norm(b.batch_size * tokens, width)
    b.linear(b.batch_size * (tokens - 1), width, classes)
    b.elementwise(b.batch_size * (tokens - 1) * classes, writes=0, backward_reads=0)
    linear_classifier(b, width, classes)


def _stem(b: GraphBuilder, work: Workload, stem: int, width: int) -> Feature:
    x = conv_norm(b, image_input(b, work), stem, 7, stride=2, first=True)
    x = conv_norm(b, x, stem, 3)
    x = conv_norm(b, x, stem, 3)
    x = b.conv(x, width, 4, stride=4, padding=0, bias=True)
    b.concat(x)
    return x


def _outlooker(b: GraphBuilder, x: Feature, heads: int, ffn_ratio: int) -> None:
    width, rows = x.channels, b.batch_size * x.positions
    coarse = Feature(width, tuple((n + 1) // 2 for n in x.size))
    windows, head = b.batch_size * coarse.positions * heads, width // heads
    b.layer_norm(rows, width)
    b.linear(rows, width, width, bias=False)
    b.concat(x)
    for _ in range(2):  # unfold, then the copy that brings heads in front
        b.concat(b.batch_size * coarse.elements * WINDOW)
    b.pool(x, 2)
    b.linear(b.batch_size * coarse.positions, width, WINDOW**2 * heads)
    b.concat(windows * WINDOW**2)
    b.softmax(windows * WINDOW, WINDOW)
    b.batched_matmul(windows, WINDOW, head, WINDOW)
    for _ in range(2):  # the copy back, then fold
        b.concat(b.batch_size * coarse.elements * WINDOW)
    b.concat(x)
    b.linear(rows, width, width)
    b.add(x)
    b.layer_norm(rows, width)
    feed_forward(b, rows, width, ffn_ratio * width)
    b.add(x)
