"""Image classifiers whose sizes people vary, and the trunks and parts that other families take.

He et al. arXiv 1512.03385; Xie et al. arXiv 1611.05431; Hu et al. arXiv 1709.01507; He et al.
arXiv 1812.01187 (deep stem, average-pooled shortcut): v1.5 puts the stride of a down-sampling
bottleneck into the 3x3 convolution, v1 into the first 1x1. Simonyan and Zisserman, arXiv 1409.1556;
Krizhevsky arXiv 1404.5997; Dosovitskiy et al. arXiv 2010.11929; Touvron et al. arXiv 2012.12877.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from ..builder import BIASED, Feature, GraphBuilder, Options
from . import takes

VGG16 = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
VGG19 = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))
GRID = (7, 7)  # positions that the first fully connected layer of VGG sees
CIFAR_PIXELS = 64  # up to here networks keep the resolution: 3x3 stem, no max-pool (section 4.2)


def image_input(b: GraphBuilder, channels: int = 3, targets: int = 0) -> Feature:
    """The image of one sample, which the host sends with ``targets`` values a pixel."""
    x = Feature(channels, b.work.image)
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
            x = b.conv_norm(x, channels, 3, data_gradient=bool(outputs or layer), **BIASED)
        outputs.append(x)
    return outputs


def squeeze_excite(b: GraphBuilder, x: Feature, squeezed: int) -> None:
    """Global pool, two 1x1 convolutions with bias, sigmoid gate, one value per channel.

    The gradient of the gate is a product and a sum.
    """
    narrow = b.conv_norm(b.global_pool(x), squeezed, 1, **BIASED)
    b.conv_norm(narrow, x.channels, 1, act="sigmoid", **BIASED)
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


@dataclass(frozen=True, slots=True)
class Trunk:
    """A residual network without its classifier.

    ``stem_channels`` are the widths of a stem of 3x3 convolutions; empty means one 7x7. ``norm``:
    as ``GraphBuilder.norm``. ``frozen_stages`` counts what is not trained: 1 the stem, 2 the stem
    and the first stage. ``dilated`` keeps the stride of the last stage at 1. ``deformable`` stages
    (counted from the end) use deformable 3x3 convolutions.
    """

    blocks: Sequence[int] = (3, 4, 6, 3)
    stem_channels: Sequence[int] = ()
    bottleneck: bool = True
    groups: int = 1
    width_per_group: int = 64
    stride_in_1x1: bool = False
    se_reduction: int = 0
    average_down: bool = False
    norm: str = "batch"
    frozen_stages: int = 0
    dilated: bool = False
    deformable: int = 0

    @classmethod
    def of_detector(cls, **changes: Any) -> Trunk:
        """As detectors fine-tune it: stem and first stage frozen, norms fixed, stride as in v1."""
        return cls(**{"stride_in_1x1": True, "norm": "frozen", "frozen_stages": 2, **changes})


@takes(Trunk)
def resnet(b: GraphBuilder, classes: int = 1000, **trunk: Any) -> None:
    """An image classifier on ``work.image_size`` (height, width) with 3 channels.

    ``trunk`` holds fields of ``Trunk``. Images of at most 64 pixels get the CIFAR stem.
    """
    x = image_input(b)
    classifier(b, stages(b, x, Trunk(**trunk))[-1], classes)


def stages(
    b: GraphBuilder, x: Feature, trunk: Trunk, strides: Sequence[int] = (1, 2, 2, 2)
) -> list[Feature]:
    """Stem and one stage for each of ``strides``; each stage's output (a feature pyramid's)."""
    outputs: list[Feature] = []
    # 7x7 convolution (or some 3x3) of stride 2, norm, ReLU, 3x3 max-pool of stride 2
    small, widths = min(x.size) <= CIFAR_PIXELS, trunk.stem_channels or (64,)
    kernel = 3 if small or trunk.stem_channels else 7
    with b.forward_only() if trunk.frozen_stages else nullcontext():
        for position, width in enumerate((64,) if small else widths):
            layer: Options = {"norm": trunk.norm, "data_gradient": position > 0}
            x = b.conv_norm(x, width, kernel, stride=1 if small or position else 2, **layer)
        if not small:
            x = b.pool(x, 3, stride=2, padding=1)
    for index, stride in enumerate(strides):
        with b.forward_only() if index + 1 < trunk.frozen_stages else nullcontext():
            from_frozen = index + 1 == trunk.frozen_stages
            x = stage(b, x, trunk, index, stride, data_gradient=not from_frozen)
        outputs.append(x)
    return outputs


def stage(
    b: GraphBuilder,
    x: Feature,
    trunk: Trunk,
    index: int,
    stride: int,
    *,
    data_gradient: bool = True,
) -> Feature:
    """Stage ``index`` (0: res2); without ``data_gradient`` nothing behind its input is trained."""
    stride = 1 if index == 3 and trunk.dilated else stride
    x = _block(b, x, trunk, index, stride, data_gradient)
    with b.repeat(trunk.blocks[index] - 1):
        x = _block(b, x, trunk, index, 1, True)
    return x


def _block(
    b: GraphBuilder, x: Feature, trunk: Trunk, index: int, stride: int, data_gradient: bool
) -> Feature:
    """One residual block, shortcut projection included."""
    planes = 64 * 2**index
    layer: Options = {"norm": trunk.norm, "data_gradient": data_gradient}
    if trunk.bottleneck:
        y = _bottleneck(b, x, trunk, index, stride, data_gradient)
    else:
        y = b.conv_norm(x, planes, 3, stride=stride, **layer)
        y = b.conv_norm(y, planes, 3, act="", norm=trunk.norm)
    if trunk.se_reduction:
        squeeze_excite(b, y, y.channels // trunk.se_reduction)
    if stride > 1 or x.channels != y.channels:
        if trunk.average_down and stride > 1:
            x, stride = b.pool(x, 2, stride=stride, ceil=True), 1
        b.conv_norm(x, y.channels, 1, stride=stride, act="", **layer)
    b.add(y)
    b.activation(y)
    return y


def _bottleneck(
    b: GraphBuilder, x: Feature, trunk: Trunk, index: int, stride: int, data_gradient: bool
) -> Feature:
    planes, norm, groups = 64 * 2**index, trunk.norm, trunk.groups
    width = planes * trunk.width_per_group // 64 * groups
    dilation = 2 if index == 3 and trunk.dilated else 1
    early, late = (stride, 1) if trunk.stride_in_1x1 else (1, stride)
    y = b.conv_norm(x, width, 1, stride=early, norm=norm, data_gradient=data_gradient)
    if trunk.deformable and index >= 4 - trunk.deformable:
        # offsets and the columns the product reads (Dai et al. arXiv 1703.06211): sampling writes
        # nine values per input value; the backward scatters them to the input and to the offsets
        offsets = b.conv(y, 18, 3, stride=late, bias=True)
        b.chain(b.batch_size * 9 * y.channels * offsets.positions, (4, 1, 1), (6, 4, 2))
    y = b.conv_norm(y, width, 3, stride=late, dilation=dilation, groups=groups, norm=norm)
    return b.conv_norm(y, planes * 4, 1, act="", norm=norm)


def vgg(
    b: GraphBuilder,
    convolutions: Sequence[int],
    batch_norm: bool = False,
    hidden: int = 4096,
    classes: int = 1000,
) -> None:
    """Five stages of 3x3 convolutions with bias, ``convolutions[i]`` in stage i."""
    x = image_input(b)
    norm = "batch" if batch_norm else "none"
    for stage, layers in enumerate(convolutions):
        width = min(64 * 2**stage, 512)
        x = b.conv_norm(x, width, 3, norm=norm, bias=True, data_gradient=stage > 0)
        with b.repeat(layers - 1):
            x = b.conv_norm(x, width, 3, norm=norm, bias=True)
        x = b.pool(x, 2)
    _fully_connected(b, x if x.size == GRID else b.upsample(x, GRID), hidden, classes)


def alexnet(
    b: GraphBuilder,
    widths: Sequence[int] = (64, 192, 384, 256, 256),
    response_norm: bool = False,
    hidden: int = 4096,
    classes: int = 1000,
) -> None:
    """Five convolutions with bias and ReLU, three overlapping max-pools, three linear layers.

    One tower; ``response_norm`` puts local response normalisation behind the first two (2012).
    """
    x = image_input(b)
    for layer, width in enumerate(widths):
        if layer:
            x = b.conv_norm(x, width, 5 if layer == 1 else 3, **BIASED)
        else:
            x = b.conv_norm(x, width, 11, stride=4, padding=2, data_gradient=False, **BIASED)
        if response_norm and layer < 2:
            b.elementwise(x, backward_reads=3)
        if layer in (0, 1, len(widths) - 1):
            x = b.pool(x, 3, stride=2)
    _fully_connected(b, x, hidden, classes)


def _fully_connected(b: GraphBuilder, x: Feature, hidden: int, classes: int) -> None:
    """Two hidden layers with ReLU and dropout, the class layer, cross entropy."""
    inputs = x.elements
    for _ in range(2):
        b.dense(b.batch_size, inputs, hidden)
        b.dropout(b.batch_size * hidden)
        inputs = hidden
    b.linear(b.batch_size, hidden, classes)
    b.cross_entropy(b.batch_size, classes)


def vit(
    b: GraphBuilder,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    ffn: int = 0,
    patch: int = 16,
    special_tokens: int = 1,
    dropout: bool = False,
    classes: int = 1000,
) -> None:
    """An image classifier on patches of ``patch`` pixels; ``ffn`` 0 means 4 x ``hidden``.

    ``special_tokens``: class (and distillation) tokens.
    """
    x = image_input(b)
    x = b.conv(x, hidden, patch, stride=patch, padding=0, bias=True, data_gradient=False)
    tokens = x.positions + special_tokens
    rows = b.batch_size * tokens
    b.concat(rows * hidden)
    if special_tokens:
        b.parameters(special_tokens * hidden, special_tokens)
    b.parameters(tokens * hidden)  # positions
    b.move(rows * hidden)
    with b.repeat(layers):
        vit_layer(b, tokens, hidden, heads, ffn or 4 * hidden, dropout)
    b.layer_norm(rows, hidden)
    for _ in range(max(special_tokens, 1)):
        b.linear(b.batch_size, hidden, classes)
        b.cross_entropy(b.batch_size, classes)


def vit_layer(
    b: GraphBuilder, tokens: int, hidden: int, heads: int, ffn: int, dropout: bool = False
) -> None:
    """Attention and feed-forward layer, a norm before and a residual behind each."""
    rows, share, flash = b.batch_size * tokens, b.work.tensor_parallel, b.work.flash_attention
    width, wide = hidden // share, ffn // share
    b.layer_norm(rows, hidden)
    b.linear(rows, hidden, 3 * width)
    if not flash:
        b.concat(rows * 3 * width)
    b.attention(heads // share, tokens, tokens, hidden // heads, flash=flash, dropout=dropout)
    b.concat(rows * width)
    b.linear(rows, width, hidden)
    for branch in ("attention", "feed-forward"):
        if branch == "feed-forward":
            b.layer_norm(rows, hidden)
            b.dense(rows, hidden, wide, "gelu")
            b.linear(rows, wide, hidden)
        if dropout:
            b.dropout(rows * hidden)
        b.add(rows * hidden)
