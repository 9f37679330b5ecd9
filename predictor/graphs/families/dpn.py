"""Dual path networks (Chen et al., arXiv 1707.01629)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..builder import Feature, GraphBuilder
from ..registry import family
from ..workload import Workload
from .image import classifier, conv_norm, image_input


@dataclass(frozen=True, slots=True)
class DualPath:
    """Widths of the blocks of one stage: residual path, dense growth, bottleneck."""

    residual: int
    growth: int
    width: int
    groups: int
    split: bool


@family("dpn")
def dpn(
    b: GraphBuilder,
    work: Workload,
    *,
    blocks: Sequence[int],
    growth: Sequence[int],
    width: int,
    groups: int,
    stem: int,
    small: bool = False,
    split: bool = False,
    classes: int = 1000,
) -> None:
    """Blocks whose output is added on the first channels and appended behind the others.

    ``small``: a 3x3 stem and a quarter of the residual channels. ``split``: two convolutions at
    the end of a block instead of one. The work of a block is linear in its input channels, so the
    equal blocks of a stage are emitted as repetitions of their mean.
    """
    x = conv_norm(b, image_input(b, work), stem, 3 if small else 7, stride=2, first=True)
    x = b.pool(x, 3, stride=2, padding=1)
    for stage, (depth, grow) in enumerate(zip(blocks, growth, strict=True)):
        style = DualPath((64 if small else 256) * 2**stage, grow, width * 2**stage, groups, split)
        x = _project(b, x, 2 if stage else 1, style)
        more = depth - 1
        with b.repeat(more):
            _block(b, x.with_channels(x.channels + grow * (more - 1) // 2), 1, style)
        x = x.with_channels(x.channels + grow * more)
    _norm_act(b, x)
    classifier(b, x, classes)


def _norm_act(b: GraphBuilder, x: Feature) -> None:
    b.batch_norm(x)
    b.activation(x)


def _project(b: GraphBuilder, x: Feature, stride: int, style: DualPath) -> Feature:
    """The first block of a stage: its shortcut is a convolution into both paths."""
    _norm_act(b, x)
    shortcut = b.conv(x, style.residual + 2 * style.growth, 1, stride=stride)
    _branch(b, x, stride, style)
    return _merge(b, shortcut, style)


def _block(b: GraphBuilder, x: Feature, stride: int, style: DualPath) -> None:
    _branch(b, x, stride, style)
    _merge(b, x, style)


def _merge(b: GraphBuilder, shortcut: Feature, style: DualPath) -> Feature:
    b.add(shortcut.with_channels(style.residual))
    joined = shortcut.with_channels(shortcut.channels + style.growth)
    b.concat(joined)
    return joined


def _branch(b: GraphBuilder, x: Feature, stride: int, style: DualPath) -> None:
    _norm_act(b, x)
    y = b.conv(x, style.width, 1)
    _norm_act(b, y)
    y = b.conv(y, style.width, 3, stride=stride, groups=style.groups)
    _norm_act(b, y)
    ends = (style.residual, style.growth) if style.split else (style.residual + style.growth,)
    for channels in ends:
        b.conv(y, channels, 1)
