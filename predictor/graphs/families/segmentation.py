"""Segmentation: U-Nets in two and three dimensions, UNet 3+, V-Net, DeepLab v3+.

Ronneberger et al. arXiv 1505.04597 (NVIDIA UNet_Medical, UNet_Industrial); Isensee et al. arXiv
1809.10486 (NVIDIA nnUNet, which is MONAI's DynUNet, UNet_3D_Medical, MLPerf UNet3D); Huang et al.
arXiv 2004.08790 (NVIDIA TensorFlow2 UNet3P on VGG-19); Milletari et al. arXiv 1606.04797 (NVIDIA
V-Net: 3x3x3 kernels, batch norm, ReLU, three down-scaling blocks); Chen et al. arXiv 1802.02611 on
Xception-65 (every separable convolution is a depthwise and a 1x1 one, each with its norm; the last
stage is dilated to keep the output stride at 16).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import BIASED, Feature, GraphBuilder, Options
from .classifiers import VGG19, image_input, plain_stages


def unet(
    b: GraphBuilder,
    widths: Sequence[int],
    bottleneck: int,
    padded: bool = False,
    halving: bool = False,
    dropout: bool = True,
    enlarge_kernel: int = 3,
    in_channels: int = 1,
    classes: int = 2,
) -> None:
    """A binary or multi-class mask of ``work.image_size``; ``widths`` from the finest level.

    UNet_Medical is unpadded (572 pixels in, 388 out) and enlarges with 3x3 deconvolutions;
    UNet_Industrial is ``padded``, enlarges by nearest neighbours and a 2x2 convolution, and is
    ``halving`` the second convolution of its up-sampling blocks.
    """
    padding = None if padded else 0

    def double(x: Feature, width: int, out: int, *, first: bool = False) -> Feature:
        for channels in (width, out):
            x = b.conv_norm(x, channels, 3, padding=padding, data_gradient=not first, **BIASED)
            first = False
        return x

    def enlarge(x: Feature, width: int) -> Feature:
        kernel = enlarge_kernel
        if kernel % 2:
            sizes: Options = {"stride": 2, "padding": kernel // 2, "output_padding": 1}
            x = b.conv_transpose(x, width, kernel, bias=True, **sizes)
        else:
            x = b.upsample(x, tuple(2 * n for n in x.size))
            around = Feature(x.channels, tuple(n + kernel - 1 for n in x.size))
            x = b.conv(around, width, kernel, padding=0, bias=True)
        b.activation(x)
        return x

    x = image_input(b, in_channels)
    skips: list[Feature] = []
    for width in widths:
        x = double(x, width, width, first=not skips)
        skips.append(x)
        x = b.pool(x, 2)
    x = double(x, bottleneck, bottleneck)
    if dropout:
        b.dropout(x)
    x = enlarge(x, bottleneck // 2)
    for level in reversed(range(len(widths))):
        width, last = widths[level], level == 0
        x = b.join(x, skips[level])
        x = double(x, width, width // 2 if halving and not last else width)
        if not last:
            x = enlarge(x, width // 2)
    x = b.conv(x, classes, 1, bias=True)
    b.cross_entropy(b.batch_size * x.positions, classes)
    b.regression_loss(x, kernels=10)


def nnunet(
    b: GraphBuilder,
    widths: Sequence[int],
    in_channels: int,
    classes: int,
    output_kernel: int = 1,
    deep_supervision: int = 0,
) -> None:
    """A segmentation of ``work.image_size`` (two or three axes) with strided convolutions.

    ``widths`` run from the finest level to the bottleneck, each level at half the size;
    ``deep_supervision`` counts the extra outputs, whose losses are taken at full size.
    """
    x = image_input(b, in_channels, 1)
    skips: list[Feature] = []
    layer: Options = {"norm": "instance", "padding": 1}
    for width in widths:
        stride = 2 if skips else 1
        x = b.conv_norm(x, width, 3, stride=stride, data_gradient=bool(skips), **layer)
        x = b.conv_norm(x, width, 3, **layer)
        skips.append(x)
    outputs = []
    for skip in reversed(skips[:-1]):
        x = b.join(b.conv_transpose(x, skip.channels, 2, stride=2, bias=True), skip)
        for _ in range(2):
            x = b.conv_norm(x, skip.channels, 3, **layer)
        outputs.append(x)
    for x in reversed(outputs[-1 - deep_supervision :]):
        logits = b.conv(x, classes, output_kernel, bias=True)
        if logits.size != b.work.image:
            logits = b.upsample(logits, b.work.image)
        _dice_cross_entropy(b, logits)


def _dice_cross_entropy(b: GraphBuilder, logits: Feature) -> None:
    """Cross-entropy, and soft dice over a softmax and a one-hot target."""
    rows = b.batch_size * logits.positions
    b.cross_entropy(rows, logits.channels)
    b.softmax(rows, logits.channels)
    b.regression_loss(logits, kernels=8)


def vnet(b: GraphBuilder, width: int = 16, classes: int = 3) -> None:
    """A segmentation of the volume ``work.image_size`` of one channel."""

    def residual(x: Feature, depth: int) -> None:
        with b.repeat(depth):
            b.conv_norm(x, x.channels, 3, bias=True)
        b.add(x)

    def enlarge(x: Feature, channels: int) -> Feature:
        x = b.conv_transpose(x, channels, 2, stride=2, bias=True)
        b.norm(x)
        b.activation(x)
        return x

    x = b.conv_norm(image_input(b, 1, 1), width, 3, bias=True, data_gradient=False)
    b.add(x)
    skips = [x]
    for _ in range(3):
        x = b.conv_norm(x, 2 * x.channels, 2, stride=2, padding=0, bias=True)
        residual(x, 3)
        skips.append(x)
    del skips[-1]
    for _ in range(2):
        skip = skips.pop()
        x = b.join(enlarge(x, skip.channels), skip)
        residual(x, 3)
    x = enlarge(x, width)  # without a skip connection
    _dice_cross_entropy(b, b.conv(x, classes, 3, bias=True))


def unet3plus(b: GraphBuilder, width: int = 64, classes: int = 2) -> None:
    """Every decoder level sees ``width`` channels of every encoder and coarser decoder level."""
    levels = plain_stages(b, image_input(b, 3, classes), VGG19)
    for target in reversed(range(len(levels) - 1)):
        size = levels[target].size
        for source, x in enumerate(levels):
            if source < target:
                x = b.pool(x, x.size[0] // size[0])
            elif x.size != size:
                x = b.upsample(x, size)
            b.conv_norm(x, width, 3, bias=True)
        joined = Feature(width * len(levels), size)
        b.concat(joined)
        levels[target] = b.conv_norm(joined, joined.channels, 3, bias=True)
    x = b.conv(levels[0], classes, 3, bias=True)
    # focal, multi-scale structural similarity (five scales, five filtered maps) and IoU
    b.softmax(b.batch_size * x.positions, classes)
    b.regression_loss(x, kernels=10)
    b.regression_loss(x, kernels=60)


def deeplab(b: GraphBuilder, classes: int = 19) -> None:
    """A semantic segmentation of the crop ``work.image_size``."""

    def separable(
        x: Feature, width: int, *, stride: int = 1, dilation: int = 1, act: str
    ) -> Feature:
        sizes: Options = {"stride": stride, "dilation": dilation, "groups": x.channels}
        return b.conv_norm(b.conv_norm(x, x.channels, 3, act=act, **sizes), width, 1, act=act)

    def block(x: Feature, channels: Sequence[int], *, stride: int = 1) -> Feature:
        """Three separable convolutions, a ReLU before each, the last strided; a shortcut."""
        y = x
        for position, width in enumerate(channels):
            b.activation(y)
            y = separable(y, width, stride=stride if position == 2 else 1, act="")
        if stride > 1 or x.channels != y.channels:
            b.conv_norm(x, y.channels, 1, stride=stride, act="")
        b.add(y)
        return y

    x = image_input(b, 3, 1)
    x = b.conv_norm(x, 32, 3, stride=2, data_gradient=False)
    x = b.conv_norm(x, 64, 3)
    x = block(x, (128, 128, 128), stride=2)
    # the decoder takes the second block's output before its last, strided convolution
    low = Feature(256, x.size)
    x = block(x, (256, 256, 256), stride=2)
    x = block(x, (728, 728, 728), stride=2)
    with b.repeat(16):
        block(x, (728, 728, 728))
    x = block(x, (728, 1024, 1024))
    for channels in (1536, 1536, 2048):
        x = separable(x, channels, dilation=2, act="relu")
    b.conv_norm(x, 256, 1)
    for rate in (6, 12, 18):  # atrous spatial pyramid pooling
        separable(x, 256, dilation=rate, act="relu")
    b.upsample(b.conv_norm(b.global_pool(x), 256, 1), x.size)
    joined = x.with_channels(256 * 5)
    b.concat(joined)
    x = b.conv_norm(joined, 256, 1)
    b.dropout(x)
    narrow = b.conv_norm(low, 48, 1)
    x = b.join(b.upsample(x, low.size), narrow)
    for _ in range(2):
        x = separable(x, 256, act="relu")
    b.upsample(b.conv(x, classes, 1, bias=True), b.work.image)
    b.cross_entropy(b.batch_size * b.work.image[0] * b.work.image[1], classes)
