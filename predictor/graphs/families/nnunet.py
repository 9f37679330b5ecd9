"""U-Nets of nnU-Net: strided convolutions, instance norm, leaky ReLU, in two or three dimensions.

Isensee et al. arXiv 1809.10486; NVIDIA nnUNet (MONAI DynUNet), UNet_3D_Medical, MLPerf UNet3D.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..builder import Feature, GraphBuilder
from . import Workload, family


@family("nnunet")
def nnunet(
    b: GraphBuilder,
    work: Workload,
    *,
    widths: Sequence[int],
    in_channels: int,
    classes: int,
    output_kernel: int = 1,
    deep_supervision: int = 0,
) -> None:
    """A segmentation of ``work.image_size`` (two or three axes).

    ``widths`` run from the finest level to the bottleneck, each level at half the size;
    ``deep_supervision`` counts the extra outputs, whose losses are taken at full size.
    """
    b.input((in_channels + 1) * prod(work.image))
    x = Feature(in_channels, work.image)
    skips: list[Feature] = []
    for width in widths:
        x = _layer(b, x, width, 2 if skips else 1, first=not skips)
        x = _layer(b, x, width, 1)
        skips.append(x)
    outputs = []
    for skip in reversed(skips[:-1]):
        x = b.conv_transpose(x, skip.channels, 2, stride=2, bias=True)
        b.concat(x.with_channels(2 * skip.channels))
        x = _layer(b, x.with_channels(2 * skip.channels), skip.channels, 1)
        x = _layer(b, x, skip.channels, 1)
        outputs.append(x)
    for x in reversed(outputs[-1 - deep_supervision :]):
        logits = b.conv(x, classes, output_kernel, bias=True)
        if logits.size != work.image:
            logits = b.upsample(logits, work.image)
        dice_cross_entropy(b, logits)


def _layer(b: GraphBuilder, x: Feature, width: int, stride: int, *, first: bool = False) -> Feature:
    x = b.conv(x, width, 3, stride=stride, padding=1, data_gradient=not first)
    b.instance_norm(x)
    b.activation(x)
    return x


def dice_cross_entropy(b: GraphBuilder, logits: Feature) -> None:
    """Cross-entropy, and soft dice over a softmax and a one-hot target."""
    rows = b.batch_size * logits.positions
    b.cross_entropy(rows, logits.channels)
    b.softmax(rows, logits.channels)
    b.regression_loss(rows * logits.channels, kernels=8)
