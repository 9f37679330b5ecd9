"""ResNets whose 3x3 works on splits of the channels, SENet-154, and pruned ECA-ResNets.

Gao et al. arXiv 1904.01169 (Res2Net, Res2NeXt); Zhang et al. arXiv 2004.08955 (ResNeSt); Li et al.
arXiv 1903.06586 (SKNet); Hu et al. arXiv 1709.01507 (SENet-154); Aflalo et al. arXiv 2002.08258
(pruned ECA-ResNet).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import GraphError
from ..builder import Feature, GraphBuilder
from ..registry import family
from ..workload import Workload
from .image import classifier, conv_norm, gate, image_input, squeeze_excite
from .resnet import stem
from .split_blocks import hierarchical, selective_kernel, split_attention

KINDS = ("res2", "nest", "sk", "senet")
ECA_KERNELS = (5, 5, 5, 7)  # of the unpruned stages of 256 to 2048 channels


@dataclass(frozen=True, slots=True)
class SplitStyle:
    """What all blocks have in common; ``splits``: scale of Res2Net, radix of ResNeSt."""

    kind: str
    bottleneck: bool
    splits: int
    groups: int
    base_width: int
    pool_first: bool
    average_down: bool
    ratio: float
    divisor: int


@family("split_resnet")
def split_resnet(
    b: GraphBuilder,
    work: Workload,
    *,
    blocks: Sequence[int],
    kind: str,
    bottleneck: bool = True,
    splits: int = 2,
    groups: int = 1,
    base_width: int = 64,
    pool_first: bool = False,
    average_down: bool = False,
    ratio: float = 1 / 16,
    divisor: int = 8,
    stem_channels: Sequence[int] = (),
    classes: int = 1000,
) -> None:
    """An image classifier; ``kind``: ``res2``, ``nest``, ``sk`` or ``senet`` (SENet-154).

    ``ratio`` and ``divisor`` give the squeezed width of a selective kernel. ``pool_first``: the
    average pool of a strided ResNeSt block stands in front of its 3x3, not behind.
    """
    if kind not in KINDS:
        raise GraphError(f"kind={kind!r} is not known: {', '.join(KINDS)}")
    style = SplitStyle(
        kind, bottleneck, splits, groups, base_width, pool_first, average_down, ratio, divisor
    )
    x = stem(b, image_input(b, work), stem_channels)
    for stage, repeats in enumerate(blocks):
        planes = 64 * 2**stage
        x = _block(b, x, planes, 2 if stage else 1, style, first=True)
        if repeats > 1:
            with b.repeat(repeats - 1):
                x = _block(b, x, planes, 1, style, first=False)
    classifier(b, x, classes)


def _block(
    b: GraphBuilder, x: Feature, planes: int, stride: int, style: SplitStyle, *, first: bool
) -> Feature:
    if style.kind == "senet":
        y = conv_norm(b, x, 2 * planes, 1)
        y = conv_norm(b, y, 4 * planes, 3, stride=stride, groups=style.groups)
    elif style.bottleneck:
        y = _inner(b, x, planes, stride, style, first)
    else:
        y = selective_kernel(b, x, planes, stride, ratio=style.ratio, divisor=style.divisor)
    if style.bottleneck:
        y = conv_norm(b, y, 4 * planes, 1, act=False)
    else:
        y = conv_norm(b, y, planes, 3, act=False)
    if style.kind == "senet":
        squeeze_excite(b, y, y.channels // 16)
    if stride > 1 or x.channels != y.channels:
        _shortcut(b, x, y.channels, stride, style)
    b.add(y)
    b.activation(y)
    return y


def _inner(
    b: GraphBuilder, x: Feature, planes: int, stride: int, style: SplitStyle, first: bool
) -> Feature:
    width = int(planes * style.base_width / 64) * style.groups
    if style.kind == "res2":
        y = conv_norm(b, x, width * style.splits, 1)
        return hierarchical(b, y, width, style.splits, stride, style.groups, first=first)
    y = conv_norm(b, x, width, 1)
    if style.kind == "sk":
        return selective_kernel(b, y, width, stride, ratio=style.ratio, divisor=style.divisor)
    if first and style.pool_first:
        y = b.pool(y, 3, stride=stride, padding=1)
    y = split_attention(b, y, width, style.splits, 1, style.groups)
    if first and not style.pool_first:
        y = b.pool(y, 3, stride=stride, padding=1)
    return y


def _shortcut(b: GraphBuilder, x: Feature, channels: int, stride: int, style: SplitStyle) -> None:
    if style.average_down and stride > 1:
        x, stride = b.pool(x, 2, stride=2, ceil=True), 1
    kernel = 3 if style.kind == "senet" and stride > 1 else 1
    conv_norm(b, x, channels, kernel, stride=stride, act=False)


@family("pruned_resnet")
def pruned_resnet(
    b: GraphBuilder,
    work: Workload,
    *,
    stages: Sequence[Sequence[int]],
    stem_channels: Sequence[int] = (32, 32, 64),
    classes: int = 1000,
) -> None:
    """A pruned ECA-ResNet-D: a stage is its width, then two inner widths per block."""
    x = stem(b, image_input(b, work), stem_channels)
    for stage, (width, *inner) in enumerate(stages):
        source = x
        for block, (narrow, middle) in enumerate(zip(inner[::2], inner[1::2], strict=True)):
            stride = 2 if stage and not block else 1
            y = conv_norm(b, x, narrow, 1)
            y = conv_norm(b, y, middle, 3, stride=stride)
            x = b.conv(y, width, 1)
        with b.repeat(len(inner) // 2):
            _residual_end(b, x, ECA_KERNELS[stage])
        z = b.pool(source, 2, stride=2, ceil=True) if stage else source
        conv_norm(b, z, width, 1, act=False)
    classifier(b, x, classes)


def _residual_end(b: GraphBuilder, x: Feature, kernel: int) -> None:
    """What all blocks of a stage end with: norm, channel attention, addition, activation."""
    b.batch_norm(x)
    b.global_pool(x)
    b.conv(Feature(1, (x.channels,)), 1, kernel)
    b.activation(b.batch_size * x.channels)
    gate(b, x)
    b.add(x)
    b.activation(x)
