"""What networks on images share: input, gates, plain stages, the classifying head."""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from . import Workload

VGG16 = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
VGG19 = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))


def image_input(b: GraphBuilder, work: Workload, channels: int = 3, targets: int = 0) -> Feature:
    """The image of one sample, which the host sends with ``targets`` values a pixel."""
    x = Feature(channels, work.image)
    b.input((channels + targets) * x.positions)
    return x


def plain_stages(
    b: GraphBuilder, x: Feature, stages: Sequence[tuple[int, int]], *, ceil: bool = False
) -> list[Feature]:
    """Stages of (channels, layers) 3x3 convolutions with a pool between; each one's output."""
    outputs: list[Feature] = []
    for channels, layers in stages:
        if outputs:
            x = b.pool(x, 2, ceil=ceil)
        for layer in range(layers):
            x = b.conv(x, channels, 3, bias=True, data_gradient=bool(outputs or layer))
            b.activation(x)
        outputs.append(x)
    return outputs


def squeeze_excite(b: GraphBuilder, x: Feature, squeezed: int) -> None:
    """Global pool, two 1x1 convolutions with bias, sigmoid gate, one value per channel.

    The gradient of the gate is a product and a sum.
    """
    narrow = b.conv(b.global_pool(x), squeezed, 1, bias=True)
    b.activation(narrow)
    wide = b.conv(narrow, x.channels, 1, bias=True)
    b.activation(wide, "sigmoid")
    b.elementwise(x, backward_reads=4, backward_writes=2, backward_kernels=3, function="mul")


def prelu(b: GraphBuilder, x: Feature) -> None:
    """ReLU with a learned slope per channel; its gradient is a product and a sum."""
    b.parameters(x.channels)
    b.elementwise(x, backward_reads=3, backward_writes=2, backward_kernels=2)


def classifier(
    b: GraphBuilder, x: Feature, classes: int, *, pool: bool = True, dropout: bool = False
) -> None:
    """Global average pool, (dropout,) one linear layer, cross entropy."""
    if pool:
        x = b.global_pool(x)
    if dropout:
        b.dropout(x)
    b.linear(b.batch_size, x.elements, classes)
    b.cross_entropy(b.batch_size, classes)
