"""HRNet, parallel branches of four resolutions (Wang et al., arXiv 1908.07919)."""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from ..registry import family
from ..workload import Workload
from .image import classifier, conv_norm, image_input

HEAD_PLANES = (32, 64, 128, 256)


@family("hrnet")
def hrnet(
    b: GraphBuilder,
    work: Workload,
    *,
    width: int,
    modules: Sequence[int] = (1, 4, 3),
    blocks: int = 4,
    first_blocks: int = 4,
    first_planes: int = 64,
    head: int = 2048,
    classes: int = 1000,
) -> None:
    """An image classifier whose finest branch has ``width`` channels, each coarser one twice.

    ``modules`` of the stages with two, three and four branches, each of ``blocks`` basic blocks;
    ``first_blocks`` bottlenecks of ``first_planes`` stand in front.
    """
    x = conv_norm(b, image_input(b, work), 64, 3, stride=2, first=True)
    x = conv_norm(b, x, 64, 3, stride=2)
    x = _bottleneck(b, x, first_planes)
    if first_blocks > 1:
        with b.repeat(first_blocks - 1):
            x = _bottleneck(b, x, first_planes)
    branches = [x]
    for stage, repeats in enumerate(modules):
        branches = _transition(b, branches, width, stage + 2)
        with b.repeat(repeats):
            for branch in branches:
                with b.repeat(blocks):
                    _basic(b, branch)
            _fuse(b, branches)
    classifier(b, _head(b, branches, head), classes)


def _bottleneck(b: GraphBuilder, x: Feature, planes: int) -> Feature:
    y = conv_norm(b, x, planes, 1)
    y = conv_norm(b, y, planes, 3)
    y = conv_norm(b, y, 4 * planes, 1, act=False)
    if x.channels != y.channels:
        conv_norm(b, x, y.channels, 1, act=False)
    b.add(y)
    b.activation(y)
    return y


def _basic(b: GraphBuilder, x: Feature) -> None:
    y = conv_norm(b, x, x.channels, 3)
    conv_norm(b, y, x.channels, 3, act=False)
    b.add(y)
    b.activation(y)


def _transition(b: GraphBuilder, branches: list[Feature], width: int, count: int) -> list[Feature]:
    """The branches with the widths of a stage of ``count``, the last of them new."""
    kept = [
        x if x.channels == width * 2**i else conv_norm(b, x, width * 2**i, 3)
        for i, x in enumerate(branches)
    ]
    new = conv_norm(b, branches[-1], width * 2 ** (count - 1), 3, stride=2)
    return [*kept, new]


def _fuse(b: GraphBuilder, branches: list[Feature]) -> None:
    """Every branch becomes the sum of all, resampled to its size and width."""
    for i, target in enumerate(branches):
        for j, source in enumerate(branches):
            if j > i:
                y = conv_norm(b, source, target.channels, 1, act=False)
                b.upsample(y, target.size)
            for step in range(i - j):
                last = step == i - j - 1
                channels = target.channels if last else source.channels
                source = conv_norm(b, source, channels, 3, stride=2, act=not last)
        with b.repeat(len(branches) - 1):
            b.add(target)
        b.activation(target)


def _head(b: GraphBuilder, branches: list[Feature], width: int) -> Feature:
    """Branches widened, then summed from fine to coarse, then one 1x1."""
    total = _bottleneck(b, branches[0], HEAD_PLANES[0])
    for x, planes in zip(branches[1:], HEAD_PLANES[1:], strict=True):
        wide = _bottleneck(b, x, planes)
        _biased(b, total, wide.channels, 3, 2)
        b.add(wide)
        total = wide
    return _biased(b, total, width, 1, 1)


def _biased(b: GraphBuilder, x: Feature, channels: int, kernel: int, stride: int) -> Feature:
    y = b.conv(x, channels, kernel, stride=stride, bias=True)
    b.batch_norm(y)
    b.activation(y)
    return y
