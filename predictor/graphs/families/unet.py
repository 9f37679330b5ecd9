"""U-Nets with max-pooling and biased convolutions: NVIDIA UNet_Medical and UNet_Industrial.

Ronneberger et al. arXiv 1505.04597. UNet_Medical is unpadded (572 pixels in, 388 out) and
enlarges with 3x3 deconvolutions; UNet_Industrial is padded, enlarges by nearest neighbours and a
2x2 convolution, and halves the second convolution of its up-sampling blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from . import Workload, family


@family("unet")
def unet(
    b: GraphBuilder,
    work: Workload,
    *,
    widths: Sequence[int],
    bottleneck: int,
    padded: bool = False,
    halving: bool = False,
    dropout: bool = True,
    enlarge_kernel: int = 3,
    in_channels: int = 1,
    classes: int = 2,
) -> None:
    """A binary or multi-class mask of ``work.image_size``; ``widths`` from the finest level."""
    b.input(in_channels * work.image[0] * work.image[1])
    padding = None if padded else 0
    x = Feature(in_channels, work.image)
    skips: list[Feature] = []
    for width in widths:
        x = _double(b, x, width, width, padding, first=not skips)
        skips.append(x)
        x = b.pool(x, 2)
    x = _double(b, x, bottleneck, bottleneck, padding)
    if dropout:
        b.dropout(x)
    x = _enlarge(b, x, bottleneck // 2, enlarge_kernel)
    for level in reversed(range(len(widths))):
        width, last = widths[level], level == 0
        x = x.with_channels(x.channels + skips[level].channels)
        b.concat(x)
        x = _double(b, x, width, width // 2 if halving and not last else width, padding)
        if not last:
            x = _enlarge(b, x, width // 2, enlarge_kernel)
    x = b.conv(x, classes, 1, bias=True)
    rows = b.batch_size * x.positions
    b.cross_entropy(rows, classes)
    b.regression_loss(rows * classes, kernels=10)


def _double(
    b: GraphBuilder, x: Feature, width: int, out: int, padding: int | None, *, first: bool = False
) -> Feature:
    x = b.conv(x, width, 3, padding=padding, bias=True, data_gradient=not first)
    b.activation(x)
    x = b.conv(x, out, 3, padding=padding, bias=True)
    b.activation(x)
    return x


def _enlarge(b: GraphBuilder, x: Feature, width: int, kernel: int) -> Feature:
    """To twice the size: a deconvolution (odd kernel), or nearest neighbours and a convolution."""
    if kernel % 2:
        pad = kernel // 2
        x = b.conv_transpose(x, width, kernel, stride=2, padding=pad, output_padding=1, bias=True)
    else:
        x = b.upsample(x, tuple(2 * n for n in x.size))
        padded = Feature(x.channels, tuple(n + kernel - 1 for n in x.size))
        x = b.conv(padded, width, kernel, padding=0, bias=True)
    b.activation(x)
    return x
