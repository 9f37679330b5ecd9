"""Networks of inverted residuals: EfficientNet, MobileNet v2/v3, MNASNet, GPUNet and kin.

Sandler et al. arXiv 1801.04381; Tan et al. arXiv 1807.11626; Howard et al. arXiv 1905.02244; Tan
and Le arXiv 1905.11946 and 2104.00298; Wang et al. arXiv 2205.06760. One row of ``stages`` is
``[block, repeats, kernel, stride, expand, channels, se]`` (``se``: squeeze ratio, 0 for none):

    cn  convolution, norm, activation
    ds  depthwise separable: depthwise, squeeze-excite, 1x1
    da  the same with an activation behind the 1x1 and no skip (MobileNet v1)
    ir  inverted residual: 1x1 expansion, depthwise, squeeze-excite, 1x1
    er  edge (fused) residual: full expansion convolution, squeeze-excite, 1x1

A block skips where its shape stays; a trailing ``-`` (``ir-``) forbids that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from ...errors import GraphError
from ..builder import Feature, GraphBuilder
from . import Workload, family
from .image import classifier, conv_norm, image_input, prelu, round_channels, squeeze_excite

BLOCKS = ("cn", "ds", "da", "ir", "er")

StageRow = Sequence[str | float]


@dataclass(frozen=True, slots=True)
class InvertedStyle:
    """What all blocks of one network have in common.

    ``se_from_expanded`` takes the squeezed width from the expanded channels instead of the
    block's input; it is rounded to ``se_divisor``. Expanded channels are rounded to 8 unless
    ``exact_expansion``.
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


@family("efficientnet")
def efficientnet(
    b: GraphBuilder,
    work: Workload,
    *,
    stages: Sequence[StageRow],
    stem: int = 32,
    head: int = 1280,
    width: float = 1.0,
    depth: float = 1.0,
    fixed_ends: bool = False,
    scale_head: bool = True,
    stem_stride: int = 2,
    head_after_pool: bool = False,
    head_bias: bool = True,
    se_from_expanded: bool = False,
    se_divisor: int = 1,
    exact_expansion: bool = False,
    dropout: bool = True,
    quantised: bool = False,
    classes: int = 1000,
) -> None:
    """An image classifier; channels are scaled by ``width``, repeats by ``depth``.

    ``fixed_ends`` keeps stem, head and the depth of the first and last stage unscaled.
    ``head_after_pool`` (MobileNet v3) puts the ``head`` wide layer behind the pool; ``head=0``
    leaves it out. ``quantised`` adds fake quantisation (int8 QAT) of the
    weights and the input of every convolution.
    """
    style = InvertedStyle(se_from_expanded, se_divisor, quantised, exact_expansion=exact_expansion)
    x = image_input(b, work)
    x = _conv(
        b, x, stem if fixed_ends else _scaled(stem, width), 3, style, stride=stem_stride, first=True
    )
    x = inverted_stages(b, x, scaled_stages(stages, width, depth, fixed_ends), style)[-1]
    wide = head if fixed_ends or not scale_head else max(head, _scaled(head, width))
    if head_after_pool:
        x = b.global_pool(x)
        x = b.conv(x, wide, 1, bias=head_bias)
        b.activation(x, "silu")
    elif wide:
        x = _conv(b, x, wide, 1, style)
    classifier(b, x, classes, pool=not head_after_pool, dropout=dropout)


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
        stages.append(
            Stage(
                name,
                int(repeats) if end else ceil(float(repeats) * depth),
                int(kernel),
                int(stride),
                float(expand),
                _scaled(int(channels), width),
                float(se),
                name != "da" and block == name,
            )
        )
    return stages


def inverted_stages(
    b: GraphBuilder, x: Feature, stages: Sequence[Stage], style: InvertedStyle
) -> list[Feature]:
    """All stages; returns the output of each (what a feature pyramid takes)."""
    outputs = []
    for stage in stages:
        x = inverted_block(b, x, stage, stage.stride, style)
        if stage.repeats > 1:
            with b.repeat(stage.repeats - 1):
                x = inverted_block(b, x, stage, 1, style)
        outputs.append(x)
    return outputs


def inverted_block(
    b: GraphBuilder, x: Feature, stage: Stage, stride: int, style: InvertedStyle
) -> Feature:
    """One block of ``stage``; a skip connection where shape allows it."""
    y = x
    if stage.block == "cn":
        y = _conv(b, y, stage.channels, stage.kernel, style, stride=stride)
    else:
        y = _expand(b, x, stage, stride, style)
        if stage.se:
            squeeze_excite(b, y, _squeezed(x.channels, y.channels, stage.se, style))
        y = _conv(b, y, stage.channels, 1, style, act=stage.block == "da")
    if stage.skip and stride == 1 and x.channels == stage.channels:
        b.add(y)
    return y


def _expand(
    b: GraphBuilder, x: Feature, stage: Stage, stride: int, style: InvertedStyle
) -> Feature:
    expanded = int(x.channels * stage.expand)
    if not style.exact_expansion:
        expanded = round_channels(x.channels * stage.expand)
    if stage.block == "er":
        return _conv(b, x, expanded, stage.kernel, style, stride=stride)
    y = _conv(b, x, expanded, 1, style) if stage.block == "ir" else x
    return _conv(b, y, y.channels, stage.kernel, style, stride=stride, groups=y.channels)


def _squeezed(channels: int, expanded: int, ratio: float, style: InvertedStyle) -> int:
    base = (expanded if style.se_from_expanded else channels) * ratio
    return max(1, round(base)) if style.se_divisor == 1 else round_channels(base, style.se_divisor)


def _conv(
    b: GraphBuilder,
    x: Feature,
    channels: int,
    kernel: int,
    style: InvertedStyle,
    *,
    stride: int = 1,
    groups: int = 1,
    act: bool = True,
    first: bool = False,
) -> Feature:
    if style.quantised:
        weights = channels * x.channels // groups * kernel * kernel
        fake_quantise(b, weights)
        fake_quantise(b, b.batch_size * x.elements)
    y = conv_norm(
        b,
        x,
        channels,
        kernel,
        stride=stride,
        groups=groups,
        act=act and not style.prelu,
        first=first,
        function="silu",
    )
    if act and style.prelu:
        prelu(b, y)
    return y


def fake_quantise(b: GraphBuilder, elements: float) -> None:
    """Fake int8 quantisation: a range reduction, then scale, round, clamp and rescale.

    Jacob et al. arXiv 1712.05877; the backward passes the gradient through a clamp mask.
    """
    b.elementwise(elements, reads=2, writes=1, kernels=3, backward_reads=2, backward_kernels=1)
