"""AlexNet: single tower of Krizhevsky arXiv 1404.5997, or the 2012 widths with LRN."""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from . import Workload, family
from .image import image_input
from .vgg import fully_connected


@family("alexnet")
def alexnet(
    b: GraphBuilder,
    work: Workload,
    *,
    widths: Sequence[int] = (64, 192, 384, 256, 256),
    stem_padding: int = 2,
    response_norm: bool = False,
    hidden: int = 4096,
    classes: int = 1000,
) -> None:
    """Five convolutions with bias and ReLU, three overlapping max-pools, three linear layers.

    ``response_norm`` puts local response normalisation behind the first two convolutions.
    """
    x = image_input(b, work)
    x = b.conv(x, widths[0], 11, stride=4, padding=stem_padding, bias=True, data_gradient=False)
    x = _tail(b, x, response_norm, True)
    x = _tail(b, b.conv(x, widths[1], 5, bias=True), response_norm, True)
    for width in widths[2:-1]:
        x = _tail(b, b.conv(x, width, 3, bias=True), False, False)
    x = _tail(b, b.conv(x, widths[-1], 3, bias=True), False, True)
    fully_connected(b, x, hidden, classes)


def _tail(b: GraphBuilder, x: Feature, response_norm: bool, pool: bool) -> Feature:
    b.activation(x)
    if response_norm:
        b.elementwise(b.batch_size * x.elements, backward_reads=3)
    return b.pool(x, 3, stride=2) if pool else x
