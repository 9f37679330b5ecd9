"""Blocks of MobileViT (Mehta and Rastegari, arXiv 2110.02178) and MobileViT v2 (2206.02680)."""

from __future__ import annotations

from math import ceil

from ..builder import Feature, GraphBuilder
from . import Workload
from .byob_blocks import RowStyle, convolve
from .image import round_channels

PATCH = 2  # pixels per side: a transformer sees each of the PATCH^2 places as its own sequence


def mobilevit(
    b: GraphBuilder,
    work: Workload,
    x: Feature,
    layers: int,
    hidden: int,
    style: RowStyle,
    heads: int = 4,
) -> Feature:
    """3x3, 1x1, ``layers`` transformer layers over patches, 1x1, and a 3x3 with the input."""
    convolve(b, x, x.channels, 3, style)
    y = b.conv(x, hidden, 1)
    y = _whole_patches(b, y)
    b.concat(y)
    rows, sequences = b.batch_size * y.positions, b.batch_size * PATCH**2
    tokens = y.positions // PATCH**2
    with b.repeat(layers):
        b.layer_norm(rows, hidden)
        b.linear(rows, hidden, 3 * hidden)
        if not work.flash_attention:
            b.concat(rows * 3 * hidden)
        b.attention(
            heads,
            tokens,
            tokens,
            hidden // heads,
            batch=sequences,
            flash=work.flash_attention,
            dropout=False,
        )
        b.concat(rows * hidden)
        b.linear(rows, hidden, hidden)
        b.add(rows * hidden)
        b.layer_norm(rows, hidden)
        b.linear(rows, hidden, 2 * hidden)
        b.activation(rows * 2 * hidden)
        b.linear(rows, 2 * hidden, hidden)
        b.add(rows * hidden)
    b.layer_norm(rows, hidden)
    b.concat(y)
    if y.size != x.size:
        y = b.upsample(y, x.size)
    convolve(b, y, x.channels, 1, style)
    both = x.with_channels(2 * x.channels)
    b.concat(both)
    return convolve(b, both, x.channels, 3, style)


def mobilevit_v2(
    b: GraphBuilder, x: Feature, layers: int, ratio: float, style: RowStyle
) -> Feature:
    """Depthwise 3x3, 1x1, ``layers`` layers of separable attention over patches, 1x1."""
    width = round_channels(x.channels * ratio)
    source = x.channels
    x = _whole_patches(b, x)
    convolve(b, x, source, 3, style, groups=source)
    y = b.conv(x, width, 1)
    b.concat(y)
    with b.repeat(layers):
        b.group_norm(y)
        b.conv(y, 1 + 2 * width, 1, bias=True)
        b.softmax(b.batch_size * PATCH**2, y.positions // PATCH**2)
        b.multiply(y)
        b.global_pool(y)
        b.activation(y)
        b.multiply(y)
        b.conv(y, width, 1, bias=True)
        b.add(y)
        b.group_norm(y)
        wide = b.conv(y, 2 * width, 1, bias=True)
        b.activation(wide)
        b.conv(wide, width, 1, bias=True)
        b.add(y)
    b.group_norm(y)
    b.concat(y)
    return convolve(b, y, source, 1, style, act=False)


def _whole_patches(b: GraphBuilder, x: Feature) -> Feature:
    """Interpolated to a multiple of the patch where it is none."""
    size = tuple(ceil(n / PATCH) * PATCH for n in x.size)
    return x if size == x.size else b.upsample(x, size)
