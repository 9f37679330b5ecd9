"""Darknet and cross-stage partial networks (Redmon arXiv 1804.02767; Wang et al. 1911.11929).

One row of ``stages`` is ``[depth, channels, stride, expand, inner, block]``: blocks of ``block``
times the stage's channels around ``inner`` times as many; a cross stage first expands to
``expand`` times the stage's channels, and half of them pass the blocks by.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import GraphError
from ..builder import Feature, GraphBuilder
from ..registry import family
from ..workload import Workload
from .image import classifier, conv_norm, image_input

STAGES = ("dark", "csp", "cs3")


@family("cspnet")
def cspnet(
    b: GraphBuilder,
    work: Workload,
    *,
    stages: Sequence[tuple[int, int, int, float, float, float]],
    stage: str = "csp",
    bottleneck: bool = False,
    stem: Sequence[int] = (32,),
    stem_kernel: int = 3,
    stem_stride: int = 1,
    stem_pool: bool = False,
    average_down: bool = False,
    grow_down: bool = False,
    linear_expansion: bool = False,
    classes: int = 1000,
) -> None:
    """An image classifier; ``stage``: ``dark`` (all channels pass the blocks), ``csp``, ``cs3``.

    ``cs3`` has no transition behind its blocks. A block is 1x1 and 3x3, with another 1x1 where
    ``bottleneck``. ``grow_down``: the down-sampling convolution takes the stage's channels, else
    those of its input; a ``dark`` stage always grows.
    """
    if stage not in STAGES:
        raise GraphError(f"stage={stage!r} is not known: {', '.join(STAGES)}")
    x = image_input(b, work)
    for position, width in enumerate(stem):
        first = position == 0
        x = conv_norm(b, x, width, stem_kernel, stride=stem_stride if first else 1, first=first)
    if stem_pool:
        x = b.pool(x, 3, stride=2, padding=1)
    for depth, channels, stride, expand, inner, block in stages:
        if stride > 1:
            grown = channels if grow_down or average_down or stage == "dark" else x.channels
            x = _down(b, x, grown, average_down)
        block_width = round(channels * block)
        shape = (depth, block_width, round(block_width * inner), bottleneck)
        if stage == "dark":
            x = _blocks(b, x, *shape)
            continue
        x = conv_norm(b, x, round(channels * expand), 1, act=not linear_expansion)
        both = x
        y = _blocks(b, x.with_channels(x.channels // 2), *shape)
        if stage == "csp":
            conv_norm(b, y, both.channels // 2, 1)
        b.concat(both)
        x = conv_norm(b, both, channels, 1)
    classifier(b, x, classes)


def _down(b: GraphBuilder, x: Feature, channels: int, average: bool) -> Feature:
    if average:
        return conv_norm(b, b.pool(x, 2), channels, 1)
    return conv_norm(b, x, channels, 3, stride=2)


def _blocks(
    b: GraphBuilder, x: Feature, depth: int, channels: int, inner: int, bottleneck: bool
) -> Feature:
    with b.repeat(depth):
        y = conv_norm(b, x.with_channels(channels), inner, 1)
        if bottleneck:
            y = conv_norm(b, y, inner, 3)
            y = conv_norm(b, y, channels, 1, act=False)
        else:
            y = conv_norm(b, y, channels, 3)
        b.add(y)
        if bottleneck:
            b.activation(y)
    return y
