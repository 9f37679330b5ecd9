"""ConvNeXt (Liu et al., arXiv 2201.03545)."""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from ..registry import family
from ..workload import Workload
from .image import image_input


@family("convnext")
def convnext(
    b: GraphBuilder,
    work: Workload,
    *,
    depths: Sequence[int],
    widths: Sequence[int],
    patch: int = 4,
    overlapping_stem: bool = False,
    classes: int = 1000,
) -> None:
    """Four stages of 7x7 depthwise convolution, layer norm and an inverted bottleneck.

    ``overlapping_stem``: two strided 3x3 convolutions instead of patches.
    """
    x = image_input(b, work)
    if overlapping_stem:
        x = b.conv(x, widths[0], 3, stride=2, bias=True, data_gradient=False)
        x = b.conv(x, widths[0], 3, stride=2, bias=True)
    else:
        x = b.conv(x, widths[0], patch, stride=patch, padding=0, bias=True, data_gradient=False)
    _norm(b, x)
    for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
        if stage:
            _norm(b, x)
            x = b.conv(x, width, 2, stride=2, padding=0, bias=True)
        with b.repeat(depth):
            _block(b, x)
    b.global_pool(x)
    b.layer_norm(b.batch_size, x.channels)
    b.linear(b.batch_size, x.channels, classes)
    b.cross_entropy(b.batch_size, classes)


def _norm(b: GraphBuilder, x: Feature) -> None:
    """Layer norm over channels; the copy brings them into the last axis."""
    b.concat(x)
    b.layer_norm(b.batch_size * x.positions, x.channels)


def _block(b: GraphBuilder, x: Feature) -> None:
    width, rows = x.channels, b.batch_size * x.positions
    y = b.conv(x, width, 7, groups=width, bias=True)
    _norm(b, y)
    b.linear(rows, width, 4 * width)
    b.activation(rows * 4 * width)
    b.linear(rows, 4 * width, width)
    b.parameters(width)
    b.elementwise(rows * width, backward_reads=4, backward_writes=2, backward_kernels=3)
    b.add(y)
