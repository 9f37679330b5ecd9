"""Inception-ResNet v2 (Szegedy et al., arXiv 1602.07261)."""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from ..registry import family
from ..workload import Workload
from .image import classifier, conv_norm, image_input
from .inception import join, pooled_branch, stem

Branch = Sequence[tuple[int, int | tuple[int, int]]]  # (channels, kernel) of each convolution

BLOCK_35: Sequence[Branch] = (((32, 1),), ((32, 1), (32, 3)), ((32, 1), (48, 3), (64, 3)))
BLOCK_17: Sequence[Branch] = (((192, 1),), ((128, 1), (160, (1, 7)), (192, (7, 1))))
BLOCK_8: Sequence[Branch] = (((192, 1),), ((192, 1), (224, (1, 3)), (256, (3, 1))))


@family("inception_resnet")
def inception_resnet(
    b: GraphBuilder, work: Workload, *, repeats: Sequence[int] = (10, 20, 9), classes: int = 1000
) -> None:
    """Three stages of residual inception blocks on 299 x 299 images; the last block is linear."""
    x = _mixed_5(b, stem(b, image_input(b, work)))
    with b.repeat(repeats[0]):
        _residual(b, x, BLOCK_35)
    x = _reduce(b, x, (((384, 3),), ((256, 1), (256, 3), (384, 3))))
    with b.repeat(repeats[1]):
        _residual(b, x, BLOCK_17)
    x = _reduce(b, x, (((256, 1), (384, 3)), ((256, 1), (288, 3)), ((256, 1), (288, 3), (320, 3))))
    with b.repeat(repeats[2]):
        _residual(b, x, BLOCK_8)
    _residual(b, x, BLOCK_8, act=False)
    classifier(b, conv_norm(b, x, 1536, 1), classes)


def _mixed_5(b: GraphBuilder, x: Feature) -> Feature:
    for branch in (((96, 1),), ((48, 1), (64, 5)), ((64, 1), (96, 3), (96, 3))):
        _branch(b, x, branch)
    pooled_branch(b, x, 64)
    return join(b, x, 96 + 64 + 96 + 64)


def _branch(b: GraphBuilder, x: Feature, layers: Branch) -> Feature:
    for channels, kernel in layers:
        x = conv_norm(b, x, channels, kernel)
    return x


def _reduce(b: GraphBuilder, x: Feature, branches: Sequence[Branch]) -> Feature:
    """Branches whose last convolution has stride 2 without padding, beside a max-pool."""
    channels = x.channels
    for layers in branches:
        width, kernel = layers[-1]
        y = conv_norm(b, _branch(b, x, layers[:-1]), width, kernel, stride=2, padding=0)
        channels += width
    b.pool(x, 3, stride=2)
    return join(b, y, channels)


def _residual(b: GraphBuilder, x: Feature, branches: Sequence[Branch], *, act: bool = True) -> None:
    """Branches, joined, mapped back by a 1x1, scaled and added."""
    channels = sum(_branch(b, x, layers).channels for layers in branches)
    b.conv(join(b, x, channels), x.channels, 1, bias=True)
    b.elementwise(b.batch_size * x.elements, backward_reads=1)
    b.add(x)
    if act:
        b.activation(x)
