"""Xception (Chollet, arXiv 1610.02357) and its aligned form (Chen et al., arXiv 1802.02611)."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import GraphError
from ..builder import Feature, GraphBuilder
from ..registry import family
from ..workload import Workload
from .image import classifier, conv_norm, image_input

STYLES = ("pooled", "aligned", "preact")


@family("xception")
def xception(
    b: GraphBuilder,
    work: Workload,
    *,
    blocks: Sequence[Sequence[int]],
    tail: Sequence[int] = (1536, 1536, 2048),
    style: str = "aligned",
    classes: int = 1000,
) -> None:
    """Residual blocks of depthwise separable convolutions, then ``tail`` without a skip.

    A row of ``blocks`` is ``[repeats, stride, widths ...]``. ``style``: ``pooled`` (the first
    publication) strides by a max-pool, ``aligned`` in the last convolution with a norm behind
    every depthwise one, ``preact`` likewise with one norm in front.
    """
    if style not in STYLES:
        raise GraphError(f"style={style!r} is not known: {', '.join(STYLES)}")
    x = _stem(b, image_input(b, work), style)
    for position, (repeats, stride, *widths) in enumerate(blocks):
        with b.repeat(repeats):
            x = _block(b, x, widths, stride, style, first=position == 0)
    if style == "preact":
        b.batch_norm(x)
        b.activation(x)
    for position, width in enumerate(tail):
        if style == "aligned":
            b.activation(x)  # stands behind the depthwise convolution here
        x = _separable(b, x, width, 1, style, lead=position > 0)
        if style != "preact":
            b.activation(x)
    if style == "preact":
        b.activation(x)
    classifier(b, x, classes)


def _stem(b: GraphBuilder, x: Feature, style: str) -> Feature:
    padding = 0 if style == "pooled" else 1
    x = conv_norm(b, x, 32, 3, stride=2, padding=padding, first=True)
    if style == "preact":
        return b.conv(x, 64, 3)
    return conv_norm(b, x, 64, 3, padding=padding)


def _block(
    b: GraphBuilder, x: Feature, widths: Sequence[int], stride: int, style: str, *, first: bool
) -> Feature:
    if style == "preact":
        b.batch_norm(x)
        b.activation(x)
    y = x
    for position, width in enumerate(widths):
        last = position == len(widths) - 1
        step = stride if last and style != "pooled" else 1
        if style != "preact" and not (first and position == 0 and style == "pooled"):
            b.activation(y)
        y = _separable(b, y, width, step, style, lead=position > 0)
    if style == "pooled" and stride > 1:
        y = b.pool(y, 3, stride=stride, padding=1)
    if stride > 1 or x.channels != y.channels:
        shortcut = b.conv(x, y.channels, 1, stride=stride)
        if style != "preact":
            b.batch_norm(shortcut)
    b.add(y)
    return y


def _separable(
    b: GraphBuilder, x: Feature, width: int, stride: int, style: str, *, lead: bool
) -> Feature:
    """Depthwise 3x3 and 1x1; ``preact``: behind a norm where one ``lead``s."""
    if style == "preact" and lead:
        b.batch_norm(x)
        b.activation(x)
    y = b.conv(x, x.channels, 3, stride=stride, groups=x.channels)
    if style == "aligned":
        b.batch_norm(y)
    y = b.conv(y, width, 1)
    if style != "preact":
        b.batch_norm(y)
    return y
