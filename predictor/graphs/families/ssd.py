"""Single-shot detectors: SSD300 and SSD512 on residual networks or VGG-16.

Liu et al. arXiv 1512.02325. The residual variants cut the network after conv4_x, whose stride
becomes 1 (NVIDIA DeepLearningExamples PyTorch/Detection/SSD; MLPerf single_stage_detector).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..builder import Feature, GraphBuilder
from . import Workload, family
from .resnet import stages, stem


@dataclass(frozen=True, slots=True)
class _Extra:
    """One additional block: a 1x1 reduction, then the convolution that shrinks the map."""

    narrow: int
    out: int
    kernel: int = 3
    stride: int = 2
    padding: int = 1


@family("ssd")
def ssd(
    b: GraphBuilder,
    work: Workload,
    *,
    blocks: Sequence[int] = (3, 4, 6),
    bottleneck: bool = True,
    vgg: bool = False,
    extras: Sequence[Sequence[int]],
    extra_norm: bool = True,
    boxes: Sequence[int] = (4, 6, 6, 6, 4, 4),
    classes: int = 81,
) -> None:
    """A detector on ``work.image_size`` with 3 channels.

    ``extras`` are rows of (1x1 channels, output channels, kernel, stride, padding), the last three
    optional; ``boxes`` counts the default boxes per position of each map; ``classes`` includes
    the background.
    """
    b.input(3 * work.image[0] * work.image[1])
    x = Feature(3, work.image)
    if vgg:
        maps = _vgg_maps(b, x)
    else:
        maps = [stages(b, stem(b, x), blocks=blocks, bottleneck=bottleneck, strides=(1, 2, 1))[-1]]
    for row in extras:
        maps.append(_extra_block(b, maps[-1], _Extra(*row), extra_norm))
    for x, count in zip(maps, boxes, strict=True):
        for outputs in (4, classes):
            b.concat(b.conv(x, count * outputs, 3, bias=True))
    total = sum(x.positions * count for x, count in zip(maps, boxes, strict=True))
    multibox_loss(b, total, classes)


def _vgg_maps(b: GraphBuilder, x: Feature) -> list[Feature]:
    """VGG-16 with a dilated fc6: conv4_3 (L2-normalised) and fc7."""
    maps = []
    for stage, (channels, repeats) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))):
        if stage:
            x = b.pool(x, 2, ceil=True)
        for layer in range(repeats):
            x = b.conv(x, channels, 3, bias=True, data_gradient=stage + layer > 0)
            b.activation(x)
        if stage == 3:
            b.parameters(channels)
            b.elementwise(b.batch_size * x.elements, reads=3, writes=2, kernels=5)
            maps.append(x)
    x = b.pool(x, 3, stride=1, padding=1)
    x = b.conv(x, 1024, 3, dilation=6, padding=6, bias=True)
    b.activation(x)
    x = b.conv(x, 1024, 1, bias=True)
    b.activation(x)
    return [*maps, x]


def _extra_block(b: GraphBuilder, x: Feature, extra: _Extra, norm: bool) -> Feature:
    x = b.conv(x, extra.narrow, 1, bias=not norm)
    _finish(b, x, norm)
    x = b.conv(
        x, extra.out, extra.kernel, stride=extra.stride, padding=extra.padding, bias=not norm
    )
    _finish(b, x, norm)
    return x


def _finish(b: GraphBuilder, x: Feature, norm: bool) -> None:
    if norm:
        b.batch_norm(x)
    b.activation(x)


def multibox_loss(b: GraphBuilder, boxes: int, classes: int) -> None:
    """Smooth L1 on boxes and cross-entropy with hard negative mining over ``boxes`` per sample.

    The two sorts over all boxes that rank the negatives are segmented radix sorts: about ten
    launches each.
    """
    rows = b.batch_size * boxes
    b.regression_loss(4 * rows, kernels=12)
    b.cross_entropy(rows, classes)
    b.elementwise(rows, reads=16, writes=16, kernels=20, backward_writes=0)
    b.elementwise(rows, reads=6, writes=4, kernels=14, backward_reads=2, backward_kernels=6)
