"""Twins-SVT: attention in windows and to a coarse map in turn (Chu et al., arXiv 2104.13840)."""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from ..registry import family
from ..workload import Workload
from .image import image_input
from .vision_blocks import attention, feed_forward, linear_classifier, scores

REDUCTIONS = (8, 4, 2, 1)


@family("twins_svt")
def twins_svt(
    b: GraphBuilder,
    work: Workload,
    *,
    widths: Sequence[int],
    depths: Sequence[int],
    heads: Sequence[int],
    window: int = 7,
    classes: int = 1000,
) -> None:
    """Layers alternate; a depthwise convolution after the first of a stage gives positions."""
    x = image_input(b, work)
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        patch = 2 if stage else 4
        x = b.conv(x, width, patch, stride=patch, padding=0, bias=True, data_gradient=stage > 0)
        b.concat(x)
        b.layer_norm(b.batch_size * x.positions, width)
        with b.repeat((depth + 1) // 2):
            _layer(b, work, x, heads[stage], window, 0)
        b.concat(x)
        b.conv(x, width, 3, groups=width, bias=True)
        b.add(x)
        b.concat(x)
        with b.repeat(depth // 2):
            _layer(b, work, x, heads[stage], 0, REDUCTIONS[stage])
        if stage < len(widths) - 1:
            b.concat(x)
    b.layer_norm(b.batch_size * x.positions, x.channels)
    b.global_pool(x)
    linear_classifier(b, x.channels, classes)


def _layer(
    b: GraphBuilder, work: Workload, x: Feature, heads: int, window: int, reduction: int
) -> None:
    rows, width = b.batch_size * x.positions, x.channels
    b.layer_norm(rows, width)
    if window:
        tiles = tuple(-(-n // window) for n in x.size)
        windows = b.batch_size * tiles[0] * tiles[1]
        b.concat(windows * window**2 * width)
        attention(b, work, window**2, width, heads, batch=windows)
        b.concat(windows * window**2 * width)
    else:
        _coarse_attention(b, work, x, heads, reduction)
    b.add(rows * width)
    b.layer_norm(rows, width)
    feed_forward(b, rows, width, 4 * width)
    b.add(rows * width)


def _coarse_attention(
    b: GraphBuilder, work: Workload, x: Feature, heads: int, reduction: int
) -> None:
    """Keys and values from a strided convolution of the map."""
    rows, width, coarse = b.batch_size * x.positions, x.channels, x
    b.linear(rows, width, width)
    if reduction > 1:
        b.concat(x)
        coarse = b.conv(x, width, reduction, stride=reduction, padding=0, bias=True)
        b.concat(coarse)
        b.layer_norm(b.batch_size * coarse.positions, width)
    b.linear(b.batch_size * coarse.positions, width, 2 * width)
    scores(b, work, b.batch_size, heads, x.positions, coarse.positions, width // heads)
    b.linear(rows, width, width)
