"""Deep layer aggregation (Yu et al., arXiv 1707.06484), also with Res2Net blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import GraphError
from ..builder import Feature, GraphBuilder
from ..registry import family
from ..workload import Workload
from .image import classifier, conv_norm, image_input
from .split_blocks import hierarchical

BLOCKS = ("basic", "bottle", "res2")


@dataclass(frozen=True, slots=True)
class AggregationStyle:
    """What all blocks and roots of one network have in common."""

    block: str
    groups: int
    base_width: int
    scale: int
    residual_root: bool


@dataclass(frozen=True, slots=True)
class Unit:
    """One piece of a tree: ``kind`` block, root, project or pool on ``source``."""

    kind: str
    source: Feature
    channels: int
    stride: int = 1


@family("dla")
def dla(
    b: GraphBuilder,
    work: Workload,
    *,
    levels: Sequence[int],
    channels: Sequence[int],
    block: str = "bottle",
    groups: int = 1,
    base_width: int = 64,
    scale: int = 4,
    residual_root: bool = False,
    classes: int = 1000,
) -> None:
    """An image classifier: two convolutional levels, then one tree per level.

    ``block``: ``basic`` (two 3x3), ``bottle`` (1x1, 3x3, 1x1) or ``res2`` (``scale`` splits).
    """
    if block not in BLOCKS:
        raise GraphError(f"block={block!r} is not known: {', '.join(BLOCKS)}")
    style = AggregationStyle(block, groups, base_width, scale, residual_root)
    x = conv_norm(b, image_input(b, work), channels[0], 7, first=True)
    for level in (0, 1):
        for position in range(levels[level]):
            stride = 2 if level and not position else 1
            x = conv_norm(b, x, channels[level], 3, stride=stride)
    for level in range(2, len(levels)):
        units: list[Unit] = []
        first = [_pooled(x, 2)] if level > 2 else []
        x = _tree(units, x, levels[level], channels[level], 2, first)
        for unit, times in Counter(units).items():
            with b.repeat(times):
                _emit(b, unit, style)
    classifier(b, x, classes)


def _tree(
    units: list[Unit], x: Feature, levels: int, channels: int, stride: int, children: list[Feature]
) -> Feature:
    """Append the units of one tree in their order; ``children`` are what its root also takes."""
    if stride > 1:
        units.append(Unit("pool", x, x.channels, stride))
    if levels > 1:
        left = _tree(units, x, levels - 1, channels, stride, [])
        return _tree(units, left, levels - 1, channels, 1, [*children, left])
    if x.channels != channels:
        units.append(Unit("project", _pooled(x, stride), channels))
    out = _pooled(x, stride).with_channels(channels)
    units.append(Unit("block", x, channels, stride))
    units.append(Unit("block", out, channels))
    joined = 2 * channels + sum(child.channels for child in children)
    units.append(Unit("root", out.with_channels(joined), channels))
    return out


def _pooled(x: Feature, stride: int) -> Feature:
    return Feature(x.channels, tuple(n // stride for n in x.size))


def _emit(b: GraphBuilder, unit: Unit, style: AggregationStyle) -> None:
    x = unit.source
    if unit.kind == "pool":
        b.pool(x, unit.stride)
    elif unit.kind == "project":
        conv_norm(b, x, unit.channels, 1, act=False)
    elif unit.kind == "root":
        b.concat(x)
        y = conv_norm(b, x, unit.channels, 1, act=False)
        if style.residual_root:
            b.add(y)
        b.activation(y)
    else:
        y = _block(b, x, unit.channels, unit.stride, style)
        b.add(y)
        b.activation(y)


def _block(
    b: GraphBuilder, x: Feature, channels: int, stride: int, style: AggregationStyle
) -> Feature:
    if style.block == "basic":
        y = conv_norm(b, x, channels, 3, stride=stride)
        return conv_norm(b, y, channels, 3, act=False)
    width = int(channels * style.base_width / 64) * style.groups // 2
    if style.block == "res2":
        y = conv_norm(b, x, width * style.scale, 1)
        y = hierarchical(b, y, width, style.scale, stride, style.groups, first=stride > 1)
    else:
        y = conv_norm(b, x, width, 1)
        y = conv_norm(b, y, width, 3, stride=stride, groups=style.groups)
    return conv_norm(b, y, channels, 1, act=False)
