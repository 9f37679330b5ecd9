"""YOLOv3: Darknet-53 and three detection scales.

Redmon and Farhadi arXiv 1804.02767.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from . import Workload, family


@family("yolo")
def yolo(
    b: GraphBuilder,
    work: Workload,
    *,
    blocks: Sequence[int] = (1, 2, 8, 8, 4),
    anchors: int = 3,
    classes: int = 80,
) -> None:
    """A detector on ``work.image_size`` with 3 channels."""
    b.input(3 * work.image[0] * work.image[1])
    features = _darknet(b, Feature(3, work.image), blocks)
    x = features[-1]
    maps = []
    for position, skip in enumerate(reversed(features[-3:])):
        if position:
            x = _conv(b, x, skip.channels // 2, 1)
            x = b.upsample(x, skip.size)
            x = x.with_channels(x.channels + skip.channels)
            b.concat(x)
        width = skip.channels // 2
        for channels, kernel in ((width, 1), (2 * width, 3)) * 2 + ((width, 1),):
            x = _conv(b, x, channels, kernel)
        maps.append(b.conv(_conv(b, x, 2 * width, 3), anchors * (5 + classes), 1, bias=True))
    for out in maps:
        _loss(b, out)


def _darknet(b: GraphBuilder, x: Feature, blocks: Sequence[int]) -> list[Feature]:
    outputs = []
    x = _conv(b, x, 32, 3, first=True)
    for repeats in blocks:
        x = _conv(b, x, 2 * x.channels, 3, stride=2)
        with b.repeat(repeats):
            _conv(b, _conv(b, x, x.channels // 2, 1), x.channels, 3)
            b.add(x)
        outputs.append(x)
    return outputs


def _conv(
    b: GraphBuilder, x: Feature, channels: int, kernel: int, *, stride: int = 1, first: bool = False
) -> Feature:
    x = b.conv(x, channels, kernel, stride=stride, data_gradient=not first)
    b.batch_norm(x)
    b.activation(x)
    return x


def _loss(b: GraphBuilder, x: Feature) -> None:
    """Permutation, box decoding, IoU against the ground truth, cross-entropy of each logit."""
    elements = b.batch_size * x.elements
    b.concat(elements)
    b.regression_loss(elements, kernels=12)
    b.elementwise(
        b.batch_size * x.positions * 3, reads=60, writes=40, kernels=40, backward_writes=0
    )
