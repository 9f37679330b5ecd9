"""V-Net: a volumetric U-Net with residual blocks.

Milletari et al. arXiv 1606.04797, in the form of NVIDIA DeepLearningExamples (3x3x3 kernels, batch
norm, ReLU, three down-scaling blocks, last up-scaling without a skip connection).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..builder import Feature, GraphBuilder
from . import Workload, family
from .nnunet import dice_cross_entropy


@family("vnet")
def vnet(
    b: GraphBuilder,
    work: Workload,
    *,
    width: int = 16,
    down: Sequence[int] = (3, 3, 3),
    up: Sequence[int] = (3, 3),
    in_channels: int = 1,
    classes: int = 3,
) -> None:
    """A segmentation of the volume ``work.image_size``; ``down`` and ``up`` count convolutions."""
    b.input((in_channels + 1) * prod(work.image))
    x = b.conv(Feature(in_channels, work.image), width, 3, bias=True, data_gradient=False)
    _finish(b, x)
    b.add(x)
    skips = [x]
    for depth in down:
        x = b.conv(x, 2 * x.channels, 2, stride=2, padding=0, bias=True)
        _finish(b, x)
        _residual(b, x, depth)
        skips.append(x)
    del skips[-1]
    for depth in up:
        skip = skips.pop()
        x = b.conv_transpose(x, skip.channels, 2, stride=2, bias=True)
        _finish(b, x)
        x = x.with_channels(2 * skip.channels)
        b.concat(x)
        _residual(b, x, depth)
    x = b.conv_transpose(x, width, 2, stride=2, bias=True)
    _finish(b, x)
    dice_cross_entropy(b, b.conv(x, classes, 3, bias=True))


def _residual(b: GraphBuilder, x: Feature, depth: int) -> None:
    with b.repeat(depth):
        _finish(b, b.conv(x, x.channels, 3, bias=True))
    b.add(x)


def _finish(b: GraphBuilder, x: Feature) -> None:
    b.batch_norm(x)
    b.activation(x)
