"""ShuffleNet v2 (Ma et al., arXiv 1807.11164)."""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from . import Workload, family
from .image import classifier, conv_norm, image_input


@family("shufflenet")
def shufflenet(
    b: GraphBuilder,
    work: Workload,
    *,
    widths: Sequence[int],
    repeats: Sequence[int] = (4, 8, 4),
    stem: int = 24,
    head: int = 1024,
    classes: int = 1000,
) -> None:
    """Units on half of the channels, joined by a channel shuffle."""
    x = conv_norm(b, image_input(b, work), stem, 3, stride=2, first=True)
    x = b.pool(x, 3, stride=2, padding=1)
    for width, units in zip(widths, repeats, strict=True):
        x = _down(b, x, width)
        with b.repeat(units - 1):
            _unit(b, x)
    classifier(b, conv_norm(b, x, head, 1), classes)


def _down(b: GraphBuilder, x: Feature, width: int) -> Feature:
    half = width // 2
    y = conv_norm(b, x, x.channels, 3, stride=2, groups=x.channels, act=False)
    conv_norm(b, y, half, 1)
    y = _branch(b, x, half, 2)
    return _shuffle(b, y.with_channels(width))


def _unit(b: GraphBuilder, x: Feature) -> None:
    half = x.with_channels(x.channels // 2)
    _branch(b, half, half.channels, 1)
    _shuffle(b, x)


def _branch(b: GraphBuilder, x: Feature, width: int, stride: int) -> Feature:
    y = conv_norm(b, x, width, 1)
    y = conv_norm(b, y, width, 3, stride=stride, groups=width, act=False)
    return conv_norm(b, y, width, 1)


def _shuffle(b: GraphBuilder, x: Feature) -> Feature:
    b.concat(x)
    b.concat(x)  # the transposition of channel groups is another copy
    return x
