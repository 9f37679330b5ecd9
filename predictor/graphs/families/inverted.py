"""Networks of inverted residuals: EfficientNet, MobileNet v2/v3, MNASNet, GPUNet, and of faces.

Sandler et al. arXiv 1801.04381; Tan et al. arXiv 1807.11626; Howard et al. arXiv 1905.02244; Tan
and Le arXiv 1905.11946 and 2104.00298; Wang et al. arXiv 2205.06760. One row of ``stages`` is
``[block, repeats, kernel, stride, expand, channels, se]`` (``se``: squeeze ratio, 0 for none):

    cn  convolution, norm, activation
    ds  depthwise separable: depthwise, squeeze-excite, 1x1
    da  the same with an activation behind the 1x1 and no skip (MobileNet v1)
    ir  inverted residual: 1x1 expansion, depthwise, squeeze-excite, 1x1
    er  edge (fused) residual: full expansion convolution, squeeze-excite, 1x1

A block skips where its shape stays; a trailing ``-`` (``ir-``) forbids that.

Faces: Deng et al. arXiv 1801.07698 (ArcFace, LResNet-IR); Chen et al. arXiv 1804.07573
(MobileFaceNet); An et al. arXiv 2010.05222 (the head is split over GPUs, each scores the global
batch on its share of the classes, as much work as scoring its own batch on all of them).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from ...errors import GraphError
from ..builder import Feature, GraphBuilder
from . import takes
from .classifiers import classifier, image_input, prelu, squeeze_excite

BLOCKS = ("cn", "ds", "da", "ir", "er")
FACE_WIDTHS = (64, 128, 256, 512)

StageRow = Sequence[str | float]


@dataclass(frozen=True, slots=True)
class InvertedStyle:
    """What all blocks of one network have in common.

    ``se_from_expanded`` takes the squeezed width from the expanded channels instead of the
    block's input; it is rounded to ``se_divisor``. Expanded channels are rounded to 8 unless
    ``exact_expansion``. ``quantised`` adds fake quantisation (int8 QAT) of the weights and the
    input of every convolution.
    """

    se_from_expanded: bool = False
    se_divisor: int = 1
    quantised: bool = False
    prelu: bool = False
    exact_expansion: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage after scaling."""

    block: str
    repeats: int
    kernel: int
    stride: int
    expand: float
    channels: int
    se: float
    skip: bool


@takes(InvertedStyle)
def efficientnet(
    b: GraphBuilder,
    stages: Sequence[StageRow],
    stem: int = 32,
    head: int = 1280,
    width: float = 1.0,
    depth: float = 1.0,
    fixed_ends: bool = False,
    scale_head: bool = True,
    head_after_pool: bool = False,
    head_bias: bool = True,
    classes: int = 1000,
    **style: Any,
) -> None:
    """An image classifier; channels are scaled by ``width``, repeats by ``depth``.

    ``fixed_ends`` keeps stem, head and the depth of the first and last stage unscaled.
    ``head_after_pool`` (MobileNet v3) puts the ``head`` wide layer behind the pool; ``head=0``
    leaves it out. ``style`` holds fields of ``InvertedStyle``.
    """
    kind = InvertedStyle(**style)
    first = stem if fixed_ends else _scaled(stem, width)
    x = _conv(b, image_input(b), first, 3, kind, stride=2, data_gradient=False)
    x = inverted_stages(b, x, scaled_stages(stages, width, depth, fixed_ends), kind)[-1]
    wide = head if fixed_ends or not scale_head else max(head, _scaled(head, width))
    if head_after_pool:
        x = b.global_pool(x)
        x = b.conv(x, wide, 1, bias=head_bias)
        b.activation(x, "silu")
    elif wide:
        x = _conv(b, x, wide, 1, kind)
    classifier(b, x, classes, pool=not head_after_pool, dropout=True)


def round_channels(channels: float, divisor: int = 8, limit: float = 0.9) -> int:
    """The multiple of ``divisor`` nearest to ``channels``, never below ``limit`` of it.

    Sandler et al. arXiv 1801.04381, the rule of all MobileNet and EfficientNet scaling.
    """
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < limit * channels else rounded


def _scaled(channels: int, width: float) -> int:
    return channels if width == 1 else round_channels(channels * width)


def scaled_stages(
    rows: Sequence[StageRow], width: float = 1.0, depth: float = 1.0, fixed_ends: bool = False
) -> list[Stage]:
    """Stage rows as ``Stage`` after compound scaling; raises GraphError for an unknown block."""
    stages = []
    for position, (kind, repeats, kernel, stride, expand, channels, se) in enumerate(rows):
        block = str(kind)
        name = block.removesuffix("-")
        if name not in BLOCKS:
            raise GraphError(f"stages: block {block!r} is not known: {', '.join(BLOCKS)}")
        end = fixed_ends and position in (0, len(rows) - 1)
        times = int(repeats) if end else ceil(float(repeats) * depth)
        wide, skip = _scaled(int(channels), width), name != "da" and block == name
        sizes = int(kernel), int(stride), float(expand), wide, float(se)
        stages.append(Stage(name, times, *sizes, skip))
    return stages


def inverted_stages(
    b: GraphBuilder, x: Feature, stages: Sequence[Stage], style: InvertedStyle
) -> list[Feature]:
    """All stages; returns the output of each (what a feature pyramid takes)."""
    outputs = []
    for stage in stages:
        x = _inverted_block(b, x, stage, stage.stride, style)
        with b.repeat(stage.repeats - 1):
            x = _inverted_block(b, x, stage, 1, style)
        outputs.append(x)
    return outputs


def _inverted_block(
    b: GraphBuilder, x: Feature, stage: Stage, stride: int, style: InvertedStyle
) -> Feature:
    """One block of ``stage``; a skip connection where shape allows it."""
    if stage.block == "cn":
        y = _conv(b, x, stage.channels, stage.kernel, style, stride=stride)
    else:
        wide = x.channels * stage.expand
        expanded = int(wide) if style.exact_expansion else round_channels(wide)
        if stage.block == "er":
            y = _conv(b, x, expanded, stage.kernel, style, stride=stride)
        else:
            y = _conv(b, x, expanded, 1, style) if stage.block == "ir" else x
            width = y.channels
            y = _conv(b, y, width, stage.kernel, style, stride=stride, groups=width)
        if stage.se:
            narrow = (y if style.se_from_expanded else x).channels * stage.se
            exact, rounded = max(1, round(narrow)), round_channels(narrow, style.se_divisor)
            squeeze_excite(b, y, exact if style.se_divisor == 1 else rounded)
        y = _conv(b, y, stage.channels, 1, style, act=stage.block == "da")
    if stage.skip and stride == 1 and x.channels == stage.channels:
        b.add(y)
    return y


def _conv(
    b: GraphBuilder, x: Feature, channels: int, kernel: int, style: InvertedStyle, **conv: Any
) -> Feature:
    act, groups = conv.pop("act", True), conv.get("groups", 1)
    if style.quantised:
        # fake int8 (Jacob et al. arXiv 1712.05877): a range reduction, then scale, round, clamp and
        # rescale; the backward passes the gradient through a clamp mask
        for elements in (channels * x.channels // groups * kernel * kernel, x):
            b.chain(elements, (2, 1, 3), (2, 1, 1))
    y = b.conv_norm(x, channels, kernel, act="silu" if act and not style.prelu else "", **conv)
    if act and style.prelu:
        prelu(b, y)
    return y


@dataclass(frozen=True, slots=True)
class ArcFace:
    """A head over identities, of whose centres a share is scored in a step."""

    emb: int = 512
    classes: int = 85742
    partial_fc_sample_ratio: float = 1.0


@takes(ArcFace)
def insightface(b: GraphBuilder, blocks: Sequence[int], **head: Any) -> None:
    """Improved residual network with an ArcFace ``head`` (keywords of ``arcface``)."""

    def block(x: Feature, width: int, stride: int) -> Feature:
        b.norm(x)
        y = _prelu_conv(b, x, width, 3)
        y = b.conv_norm(y, width, 3, stride=stride, act="")
        if stride > 1:
            b.conv_norm(x, width, 1, stride=stride, act="")
        b.add(y)
        return y

    x = _prelu_conv(b, image_input(b), FACE_WIDTHS[0], 3, data_gradient=False)
    for width, repeats in zip(FACE_WIDTHS, blocks, strict=True):
        x = block(x, width, 2)
        with b.repeat(repeats - 1):
            x = block(x, width, 1)
    b.norm(x)
    b.dropout(x)
    arcface(b, x, **head)


@takes(ArcFace)
def mobilefacenet(b: GraphBuilder, stages: Sequence[StageRow], emb: int = 128, **head: Any) -> None:
    """Inverted residuals with PReLU, global depthwise convolution instead of pooling."""
    width = FACE_WIDTHS[0]
    x = _prelu_conv(b, image_input(b), width, 3, stride=2, data_gradient=False)
    x = _prelu_conv(b, x, width, 3, groups=width)
    x = inverted_stages(b, x, scaled_stages(stages), InvertedStyle(prelu=True))[-1]
    x = _prelu_conv(b, x, 512, 1)
    x = b.conv_norm(x, 512, x.size, padding=0, groups=512, act="")
    arcface(b, x, emb=emb, **head)


def _prelu_conv(b: GraphBuilder, x: Feature, channels: int, kernel: int, **conv: Any) -> Feature:
    x = b.conv_norm(x, channels, kernel, act="", **conv)
    prelu(b, x)
    return x


def arcface(b: GraphBuilder, x: Feature, **sizes: Any) -> None:
    """Embedding, cosine logits against one centre per class, angular margin, cross entropy.

    The centres stay on their GPU and are never all-reduced.
    """
    head = ArcFace(**sizes)
    rows, emb = b.batch_size, head.emb
    sampled = max(1, int(head.classes * head.partial_fc_sample_ratio))
    b.linear(rows, x.elements, emb)
    b.norm(Feature(emb, (1,)))
    b.elementwise(rows * emb, kernels=2)
    b.elementwise(float(sampled * emb), reads=2, kernels=2, backward_reads=3)
    b.parameters(head.classes * emb, sparse=True)
    b.linear(rows, emb, sampled, bias=False, shared=True)
    b.elementwise(float(rows * sampled), kernels=2)
    b.cross_entropy(rows, sampled)
