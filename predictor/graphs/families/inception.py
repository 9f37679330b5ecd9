"""Inception v3 (Szegedy et al., arXiv 1512.00567), with or without the auxiliary head."""

from __future__ import annotations

from ..builder import Feature, GraphBuilder
from ..registry import family
from ..workload import Workload
from .image import classifier, conv_norm, image_input

AUXILIARY_GRID = 5


@family("inception")
def inception(
    b: GraphBuilder, work: Workload, *, auxiliary: bool = False, classes: int = 1000
) -> None:
    """Inception v3 of 299 x 299 images; ``auxiliary`` trains a second classifier on Mixed_6e."""
    x = stem(b, image_input(b, work))
    for pooled in (32, 64, 64):
        x = _mixed_5(b, x, pooled)
    x = _reduction_6(b, x)
    for width, times in ((128, 1), (160, 2), (192, 1)):
        with b.repeat(times):
            x = _mixed_6(b, x, width)
    if auxiliary:
        _auxiliary_head(b, x, classes)
    x = _reduction_7(b, x)
    for _ in range(2):
        x = _mixed_7(b, x)
    classifier(b, x, classes, dropout=True)


def stem(b: GraphBuilder, x: Feature) -> Feature:
    """Five convolutions and two max-pools, to an eighth of the size."""
    x = conv_norm(b, x, 32, 3, stride=2, padding=0, first=True)
    x = conv_norm(b, x, 32, 3, padding=0)
    x = b.pool(conv_norm(b, x, 64, 3), 3, stride=2)
    x = conv_norm(b, x, 80, 1)
    return b.pool(conv_norm(b, x, 192, 3, padding=0), 3, stride=2)


def join(b: GraphBuilder, x: Feature, channels: int) -> Feature:
    """Concatenate branches of ``channels`` in all."""
    joined = x.with_channels(channels)
    b.concat(joined)
    return joined


def pooled_branch(b: GraphBuilder, x: Feature, channels: int) -> None:
    """Average pool of stride 1 and a 1x1 convolution."""
    conv_norm(b, b.pool(x, 3, stride=1, padding=1), channels, 1)


def _mixed_5(b: GraphBuilder, x: Feature, pooled: int) -> Feature:
    conv_norm(b, x, 64, 1)
    conv_norm(b, conv_norm(b, x, 48, 1), 64, 5)
    y = conv_norm(b, conv_norm(b, x, 64, 1), 96, 3)
    conv_norm(b, y, 96, 3)
    pooled_branch(b, x, pooled)
    return join(b, x, 64 + 64 + 96 + pooled)


def _reduction_6(b: GraphBuilder, x: Feature) -> Feature:
    conv_norm(b, x, 384, 3, stride=2, padding=0)
    y = conv_norm(b, conv_norm(b, x, 64, 1), 96, 3)
    y = conv_norm(b, y, 96, 3, stride=2, padding=0)
    b.pool(x, 3, stride=2)
    return join(b, y, 384 + 96 + x.channels)


def _mixed_6(b: GraphBuilder, x: Feature, width: int) -> Feature:
    conv_norm(b, x, 192, 1)
    y = conv_norm(b, conv_norm(b, x, width, 1), width, (1, 7))
    conv_norm(b, y, 192, (7, 1))
    y = conv_norm(b, conv_norm(b, x, width, 1), width, (7, 1))
    y = conv_norm(b, conv_norm(b, y, width, (1, 7)), width, (7, 1))
    conv_norm(b, y, 192, (1, 7))
    pooled_branch(b, x, 192)
    return join(b, x, 768)


def _auxiliary_head(b: GraphBuilder, x: Feature, classes: int) -> None:
    y = conv_norm(b, b.pool(x, 5, stride=3), 128, 1)
    y = conv_norm(b, y, 768, AUXILIARY_GRID, padding=0)
    classifier(b, y, classes)


def _reduction_7(b: GraphBuilder, x: Feature) -> Feature:
    y = conv_norm(b, conv_norm(b, x, 192, 1), 320, 3, stride=2, padding=0)
    z = conv_norm(b, conv_norm(b, x, 192, 1), 192, (1, 7))
    conv_norm(b, conv_norm(b, z, 192, (7, 1)), 192, 3, stride=2, padding=0)
    b.pool(x, 3, stride=2)
    return join(b, y, 320 + 192 + x.channels)


def _mixed_7(b: GraphBuilder, x: Feature) -> Feature:
    conv_norm(b, x, 320, 1)
    y = conv_norm(b, x, 384, 1)
    z = conv_norm(b, conv_norm(b, x, 448, 1), 384, 3)
    for branch in (y, z):
        conv_norm(b, branch, 384, (1, 3))
        conv_norm(b, branch, 384, (3, 1))
    pooled_branch(b, x, 192)
    return join(b, x, 320 + 768 + 768 + 192)
