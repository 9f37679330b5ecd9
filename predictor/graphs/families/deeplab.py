"""DeepLab v3+ on Xception-65.

Chen et al. arXiv 1802.02611: every separable convolution is a depthwise and a 1x1 one, each with
its norm; the last stage is dilated to keep the output stride at 16.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from . import Workload, family


@family("deeplab")
def deeplab(
    b: GraphBuilder,
    work: Workload,
    *,
    middle_blocks: int = 16,
    rates: Sequence[int] = (6, 12, 18),
    classes: int = 19,
) -> None:
    """A semantic segmentation of the crop ``work.image_size``."""
    b.input(4 * work.image[0] * work.image[1])
    x = _conv(b, Feature(3, work.image), 32, 3, stride=2, first=True)
    x = _conv(b, x, 64, 3)
    x = _block(b, x, (128, 128, 128), stride=2)
    # the decoder takes the second block's output before its last, strided convolution
    low = Feature(256, x.size)
    x = _block(b, x, (256, 256, 256), stride=2)
    x = _block(b, x, (728, 728, 728), stride=2)
    with b.repeat(middle_blocks):
        _block(b, x, (728, 728, 728))
    x = _block(b, x, (728, 1024, 1024))
    for channels in (1536, 1536, 2048):
        x = _separable(b, x, channels, dilation=2, activate=True)
    x = _decode(b, _pyramid_pooling(b, x, rates), low)
    logits = b.upsample(b.conv(x, classes, 1, bias=True), work.image)
    b.cross_entropy(b.batch_size * logits.positions, classes)


def _pyramid_pooling(b: GraphBuilder, x: Feature, rates: Sequence[int]) -> Feature:
    """ASPP: 1x1, three dilated separable convolutions and image pooling, 256 channels each."""
    _conv(b, x, 256, 1)
    for rate in rates:
        _separable(b, x, 256, dilation=rate, activate=True)
    b.upsample(_conv(b, b.global_pool(x), 256, 1), x.size)
    joined = x.with_channels(256 * (2 + len(rates)))
    b.concat(joined)
    x = _conv(b, joined, 256, 1)
    b.dropout(x)
    return x


def _decode(b: GraphBuilder, x: Feature, low: Feature) -> Feature:
    narrow = _conv(b, low, 48, 1)
    x = b.upsample(x, low.size)
    x = x.with_channels(x.channels + narrow.channels)
    b.concat(x)
    for _ in range(2):
        x = _separable(b, x, 256, activate=True)
    return x


def _block(b: GraphBuilder, x: Feature, channels: Sequence[int], *, stride: int = 1) -> Feature:
    """Three separable convolutions, a ReLU before each, the last strided; a shortcut."""
    y = x
    for position, width in enumerate(channels):
        b.activation(y)
        y = _separable(b, y, width, stride=stride if position == 2 else 1)
    if stride > 1 or x.channels != y.channels:
        b.batch_norm(b.conv(x, y.channels, 1, stride=stride))
    b.add(y)
    return y


def _separable(
    b: GraphBuilder,
    x: Feature,
    channels: int,
    *,
    stride: int = 1,
    dilation: int = 1,
    activate: bool = False,
) -> Feature:
    x = b.conv(x, x.channels, 3, stride=stride, dilation=dilation, groups=x.channels)
    for pointwise in (False, True):
        if pointwise:
            x = b.conv(x, channels, 1)
        b.batch_norm(x)
        if activate:
            b.activation(x)
    return x


def _conv(
    b: GraphBuilder, x: Feature, channels: int, kernel: int, *, stride: int = 1, first: bool = False
) -> Feature:
    x = b.conv(x, channels, kernel, stride=stride, data_gradient=not first)
    b.batch_norm(x)
    b.activation(x)
    return x
