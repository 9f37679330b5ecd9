"""UNet 3+: every decoder level sees every encoder and coarser decoder level.

Huang et al. arXiv 2004.08790, in the form of NVIDIA DeepLearningExamples TensorFlow2 UNet3P, whose
results use the VGG-19 encoder.
"""

from __future__ import annotations

from ..builder import Feature, GraphBuilder
from . import Workload, family

_VGG19 = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))


@family("unet3plus")
def unet3plus(
    b: GraphBuilder, work: Workload, *, width: int = 64, in_channels: int = 3, classes: int = 2
) -> None:
    """A segmentation of ``work.image_size``; ``width`` channels from each of five levels."""
    b.input((in_channels + classes) * work.image[0] * work.image[1])
    levels = _encoder(b, Feature(in_channels, work.image))
    encoded = len(levels)
    for target in reversed(range(encoded - 1)):
        size = levels[target].size
        for source, x in enumerate(levels):
            _conv_norm(b, _resized(b, x, size, source < target), width)
        joined = Feature(width * encoded, size)
        b.concat(joined)
        levels[target] = _conv_norm(b, joined, width * encoded)
    x = b.conv(levels[0], classes, 3, bias=True)
    _hybrid_loss(b, x)


def _encoder(b: GraphBuilder, x: Feature) -> list[Feature]:
    levels = []
    for stage, (channels, repeats) in enumerate(_VGG19):
        if stage:
            x = b.pool(x, 2)
        for layer in range(repeats):
            x = b.conv(x, channels, 3, bias=True, data_gradient=stage + layer > 0)
            b.activation(x)
        levels.append(x)
    return levels


def _resized(b: GraphBuilder, x: Feature, size: tuple[int, ...], finer: bool) -> Feature:
    if x.size == size:
        return x
    return b.pool(x, x.size[0] // size[0]) if finer else b.upsample(x, size)


def _conv_norm(b: GraphBuilder, x: Feature, channels: int) -> Feature:
    x = b.conv(x, channels, 3, bias=True)
    b.batch_norm(x)
    b.activation(x)
    return x


def _hybrid_loss(b: GraphBuilder, logits: Feature) -> None:
    """Focal, multi-scale structural similarity (five scales, five filtered maps) and IoU."""
    elements = b.batch_size * logits.elements
    b.softmax(b.batch_size * logits.positions, logits.channels)
    b.regression_loss(elements, kernels=10)
    b.regression_loss(elements, kernels=60)
