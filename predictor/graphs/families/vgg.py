"""VGG (Simonyan and Zisserman, arXiv 1409.1556), with and without batch norm."""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from . import Workload, family
from .image import image_input

GRID = 7  # positions per axis that the first fully connected layer sees


@family("vgg")
def vgg(
    b: GraphBuilder,
    work: Workload,
    *,
    convolutions: Sequence[int],
    batch_norm: bool = False,
    hidden: int = 4096,
    classes: int = 1000,
) -> None:
    """Five stages of 3x3 convolutions with bias, ``convolutions[i]`` in stage i."""
    x = image_input(b, work)
    first = True
    for stage, layers in enumerate(convolutions):
        width = min(64 * 2**stage, 512)
        x = _convolution(b, x, width, batch_norm, first)
        first = False
        if layers > 1:
            with b.repeat(layers - 1):
                x = _convolution(b, x, width, batch_norm, False)
        x = b.pool(x, 2)
    if x.size != (GRID, GRID):
        x = _resize(b, x)
    fully_connected(b, x, hidden, classes)


def _convolution(b: GraphBuilder, x: Feature, width: int, batch_norm: bool, first: bool) -> Feature:
    x = b.conv(x, width, 3, bias=True, data_gradient=not first)
    if batch_norm:
        b.batch_norm(x)
    b.activation(x)
    return x


def _resize(b: GraphBuilder, x: Feature) -> Feature:
    return b.upsample(x, (GRID, GRID))


def fully_connected(b: GraphBuilder, x: Feature, hidden: int, classes: int) -> None:
    """Two hidden layers with ReLU and dropout, the class layer, cross entropy."""
    inputs = x.elements
    for _ in range(2):
        b.linear(b.batch_size, inputs, hidden)
        b.activation(b.batch_size * hidden)
        b.dropout(b.batch_size * hidden)
        inputs = hidden
    b.linear(b.batch_size, hidden, classes)
    b.cross_entropy(b.batch_size, classes)
