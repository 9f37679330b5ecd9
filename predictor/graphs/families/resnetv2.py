"""Pre-activation residual networks: ResNet v2 and Big Transfer.

He et al. arXiv 1603.05027; Kolesnikov et al. arXiv 1912.11370 (BiT: group norm, standardised
weights, wider channels).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..builder import Feature, GraphBuilder
from . import Workload, family
from .image import classifier, image_input
from .standardised import norm_activation, standardised_conv


@dataclass(frozen=True, slots=True)
class PreActivation:
    """What all blocks of one network have in common."""

    norm: str
    standardised: bool
    average_down: bool


@family("resnetv2")
def resnetv2(
    b: GraphBuilder,
    work: Workload,
    *,
    blocks: Sequence[int],
    stem_channels: Sequence[int] = (),
    width: int = 1,
    norm: str = "batch",
    standardised: bool = False,
    average_down: bool = False,
    classes: int = 1000,
) -> None:
    """Bottlenecks that start with norm and activation; channels are ``width`` times ResNet's.

    ``norm``: batch, group, evo or frn. ``stem_channels`` names the widths of a stem of 3x3
    convolutions; empty means one 7x7.
    """
    style = PreActivation(norm, standardised, average_down)
    x = _stem(b, image_input(b, work), stem_channels, 64 * width, style)
    for stage, repeats in enumerate(blocks):
        out = 256 * width * 2**stage
        x = _block(b, x, out, 2 if stage else 1, style, project=True)
        if repeats > 1:
            with b.repeat(repeats - 1):
                x = _block(b, x, out, 1, style)
    norm_activation(b, x, norm)
    classifier(b, x, classes)


def _stem(
    b: GraphBuilder, x: Feature, channels: Sequence[int], out: int, style: PreActivation
) -> Feature:
    if not channels:
        x = _conv(b, x, out, 7, style, stride=2, first=True)
    for position, width in enumerate(channels):
        if position:
            norm_activation(b, x, style.norm)
        stride = 1 if position else 2
        x = _conv(b, x, width, 3, style, stride=stride, first=position == 0)
    if style.standardised:
        b.concat(x)  # BiT pads by a copy before the pool
    return b.pool(x, 3, stride=2, padding=1)


def _block(
    b: GraphBuilder,
    x: Feature,
    out: int,
    stride: int,
    style: PreActivation,
    *,
    project: bool = False,
) -> Feature:
    norm_activation(b, x, style.norm)
    if project:
        pooled = style.average_down and stride > 1
        shortcut = b.pool(x, 2, stride=stride, ceil=True) if pooled else x
        _conv(b, shortcut, out, 1, style, stride=1 if pooled else stride)
    y = _conv(b, x, out // 4, 1, style)
    norm_activation(b, y, style.norm)
    y = _conv(b, y, out // 4, 3, style, stride=stride)
    norm_activation(b, y, style.norm)
    y = _conv(b, y, out, 1, style)
    b.add(y)
    return y


def _conv(
    b: GraphBuilder,
    x: Feature,
    channels: int,
    kernel: int,
    style: PreActivation,
    *,
    stride: int = 1,
    first: bool = False,
) -> Feature:
    if style.standardised:
        return standardised_conv(b, x, channels, kernel, stride=stride, first=first)
    return b.conv(x, channels, kernel, stride=stride, data_gradient=not first)
