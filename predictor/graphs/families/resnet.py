"""Residual networks: ResNet v1/v1.5 and their stems, ResNeXt, SE-ResNe(X)t, wide ResNet.

He et al. arXiv 1512.03385; Xie et al. arXiv 1611.05431; Hu et al. arXiv 1709.01507; He et al.
arXiv 1812.01187 (deep stem, average-pooled shortcut). v1.5 puts the stride of a down-sampling
bottleneck into the 3x3 convolution, v1 into the first 1x1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..builder import Feature, GraphBuilder
from . import Workload, family
from .image import classifier, conv_norm, image_input, normalise, squeeze_excite

CIFAR_PIXELS = 64  # up to here networks keep the resolution: 3x3 stem, no max-pool (section 4.2)


@dataclass(frozen=True, slots=True)
class BlockStyle:
    """What all residual blocks of one network have in common."""

    bottleneck: bool = True
    groups: int = 1
    width_per_group: int = 64
    stride_in_1x1: bool = False
    se_reduction: int = 0
    average_down: bool = False
    norm: str = "batch"


@family("resnet")
def resnet(
    b: GraphBuilder,
    work: Workload,
    *,
    blocks: Sequence[int],
    stem_channels: Sequence[int] = (),
    bottleneck: bool = True,
    groups: int = 1,
    width_per_group: int = 64,
    stride_in_1x1: bool = False,
    se_reduction: int = 0,
    average_down: bool = False,
    norm: str = "batch",
    classes: int = 1000,
) -> None:
    """An image classifier on ``work.image_size`` (height, width) with 3 channels.

    ``stem_channels`` names the widths of a stem of 3x3 convolutions; empty means one 7x7. Images
    of at most 64 pixels get the CIFAR stem.
    """
    x = image_input(b, work)
    x = stem(b, x, stem_channels, norm)
    style = BlockStyle(
        bottleneck,
        groups,
        width_per_group,
        stride_in_1x1,
        se_reduction,
        average_down,
        norm,
    )
    x = residual_stages(b, x, blocks, style)[-1]
    classifier(b, x, classes)


def stem(b: GraphBuilder, x: Feature, channels: Sequence[int] = (), norm: str = "batch") -> Feature:
    """7x7 convolution (or some 3x3) of stride 2, norm, ReLU, 3x3 max-pool of stride 2."""
    if min(x.size) <= CIFAR_PIXELS:
        return conv_norm(b, x, 64, 3, norm=norm, first=True)
    if not channels:
        x = conv_norm(b, x, 64, 7, stride=2, norm=norm, first=True)
    for position, width in enumerate(channels):
        x = conv_norm(b, x, width, 3, stride=1 if position else 2, norm=norm, first=position == 0)
    return b.pool(x, 3, stride=2, padding=1)


def stages(
    b: GraphBuilder,
    x: Feature,
    *,
    blocks: Sequence[int],
    bottleneck: bool = True,
    groups: int = 1,
    width_per_group: int = 64,
    stride_in_1x1: bool = False,
    se_reduction: int = 0,
    strides: Sequence[int] = (1, 2, 2, 2),
    norm: str = "batch",
) -> list[Feature]:
    """The residual stages; returns the output of each (what a feature pyramid takes)."""
    style = BlockStyle(bottleneck, groups, width_per_group, stride_in_1x1, se_reduction, norm=norm)
    return residual_stages(b, x, blocks, style, strides)


def residual_stages(
    b: GraphBuilder,
    x: Feature,
    blocks: Sequence[int],
    style: BlockStyle,
    strides: Sequence[int] = (1, 2, 2, 2),
) -> list[Feature]:
    """The residual stages in one block style; returns the output of each."""
    outputs = []
    for stage, (repeats, stride) in enumerate(zip(blocks, strides, strict=False)):
        planes = 64 * 2**stage
        x = residual_block(b, x, planes, stride, style)
        if repeats > 1:
            with b.repeat(repeats - 1):
                x = residual_block(b, x, planes, 1, style)
        outputs.append(x)
    return outputs


def residual_block(
    b: GraphBuilder, x: Feature, planes: int, stride: int, style: BlockStyle
) -> Feature:
    """One residual block of ``planes`` base width, shortcut projection included."""
    branch = _bottleneck if style.bottleneck else _basic
    y = branch(b, x, planes, stride, style)
    if style.se_reduction:
        squeeze_excite(b, y, y.channels // style.se_reduction)
    if stride > 1 or x.channels != y.channels:
        _shortcut(b, x, y.channels, stride, style)
    b.add(y)
    b.activation(y)
    return y


def _bottleneck(
    b: GraphBuilder, x: Feature, planes: int, stride: int, style: BlockStyle
) -> Feature:
    width = planes * style.width_per_group // 64 * style.groups
    early, late = (stride, 1) if style.stride_in_1x1 else (1, stride)
    y = conv_norm(b, x, width, 1, stride=early, norm=style.norm)
    y = conv_norm(b, y, width, 3, stride=late, groups=style.groups, norm=style.norm)
    return conv_norm(b, y, planes * 4, 1, act=False, norm=style.norm)


def _basic(b: GraphBuilder, x: Feature, planes: int, stride: int, style: BlockStyle) -> Feature:
    y = conv_norm(b, x, planes, 3, stride=stride, norm=style.norm)
    return conv_norm(b, y, planes, 3, act=False, norm=style.norm)


def _shortcut(b: GraphBuilder, x: Feature, out: int, stride: int, style: BlockStyle) -> None:
    if style.average_down and stride > 1:
        x, stride = b.pool(x, 2, stride=stride, ceil=True), 1
    normalise(b, b.conv(x, out, 1, stride=stride), style.norm)
