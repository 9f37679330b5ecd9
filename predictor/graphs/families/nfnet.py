"""Networks without norms: NF-ResNet, NF-RegNet, NFNet.

Brock et al. arXiv 2101.08692 and 2102.06171.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import GraphError
from ..builder import Feature, GraphBuilder
from . import Workload, family
from .image import channel_attention, classifier, image_input, round_channels, squeeze_excite
from .standardised import standardised_conv


@dataclass(frozen=True, slots=True)
class NormFree:
    """What all blocks of one network have in common.

    ``expand_input`` (RegNet) takes the bottleneck's width from the block's input and gates it
    before the last convolution; otherwise from the output, gated behind it.
    """

    bottleneck: float
    group_size: int
    expand_input: bool
    second_3x3: bool
    attention: str
    se_ratio: float
    learned_skip: bool
    scaled_activation: bool


@family("nfnet")
def nfnet(
    b: GraphBuilder,
    work: Workload,
    *,
    depths: Sequence[int],
    channels: Sequence[int] = (256, 512, 1536, 1536),
    stem: str = "quad",
    stem_channels: int = 128,
    width: float = 1.0,
    bottleneck: float = 0.5,
    group_size: int = 0,
    features: int = 0,
    expand_input: bool = False,
    second_3x3: bool = False,
    attention: str = "none",
    se_ratio: float = 0.5,
    learned_skip: bool = False,
    scaled_activation: bool = False,
    classes: int = 1000,
) -> None:
    """Residual stages of scaled, standardised convolutions; ``features``: of a last 1x1.

    ``stem``: quad (four 3x3), 7x7 (and a max-pool) or 3x3. ``attention``: none, se or eca.
    """
    style = NormFree(
        bottleneck,
        group_size,
        expand_input,
        second_3x3,
        attention,
        se_ratio,
        learned_skip,
        scaled_activation,
    )
    x = _stem(b, image_input(b, work), stem, round_channels(stem_channels * width), style)
    for stage, (depth, base) in enumerate(zip(depths, channels, strict=True)):
        out = round_channels(base * width)
        stride = 1 if stage == 0 and stem != "3x3" else 2
        x = _block(b, x, out, stride, style, narrow=expand_input and stage == 0)
        if depth > 1:
            with b.repeat(depth - 1):
                x = _block(b, x, out, 1, style)
    if features:
        x = standardised_conv(b, x, round_channels(features * width), 1, scaled=True)
    _activation(b, x, style)
    classifier(b, x, classes)


def _stem(b: GraphBuilder, x: Feature, stem: str, out: int, style: NormFree) -> Feature:
    if stem == "quad":
        x = standardised_conv(b, x, out // 8, 3, stride=2, scaled=True, first=True)
        for width, stride in ((out // 4, 1), (out // 2, 1), (out, 2)):
            _activation(b, x, style)
            x = standardised_conv(b, x, width, 3, stride=stride, scaled=True)
        return x
    if stem == "3x3":
        return standardised_conv(b, x, out, 3, stride=2, scaled=True, first=True)
    if stem == "7x7":
        x = standardised_conv(b, x, out, 7, stride=2, scaled=True, first=True)
        return b.pool(x, 3, stride=2, padding=1)
    raise GraphError(f"stem={stem!r} is not known: quad, 3x3, 7x7")


def _block(
    b: GraphBuilder, x: Feature, out: int, stride: int, style: NormFree, *, narrow: bool = False
) -> Feature:
    mid = round_channels(
        (x.channels if style.expand_input else out) * (1.0 if narrow else style.bottleneck)
    )
    groups = mid // style.group_size if style.group_size else 1
    if style.group_size:
        mid = groups * style.group_size
    _activation(b, x, style, products=1)
    if stride > 1 or x.channels != out:
        shortcut = b.pool(x, 2, stride=stride, ceil=True) if stride > 1 else x
        standardised_conv(b, shortcut, out, 1, scaled=True)
    y = standardised_conv(b, x, mid, 1, scaled=True)
    for step in (stride, 1) if style.second_3x3 else (stride,):
        _activation(b, y, style)
        y = standardised_conv(b, y, mid, 3, stride=step, groups=groups, scaled=True)
    if style.expand_input:
        _attention(b, y, style)
    _activation(b, y, style)
    y = standardised_conv(b, y, out, 1, scaled=True)
    if not style.expand_input:
        _attention(b, y, style)
    if style.learned_skip:
        b.parameters(1)
        b.elementwise(b.batch_size * y.elements, backward_reads=3, backward_kernels=3)
    b.elementwise(  # scale by a constant, then add
        b.batch_size * y.elements, reads=3, writes=2, kernels=2, backward_reads=3, backward_writes=2
    )
    return y


def _attention(b: GraphBuilder, x: Feature, style: NormFree) -> None:
    if style.attention == "none":
        return
    if style.attention == "se":
        squeeze_excite(b, x, round_channels(x.channels * style.se_ratio, limit=0.0))
    elif style.attention == "eca":
        channel_attention(b, x)
    else:
        raise GraphError(f"attention={style.attention!r} is not known: none, se, eca")
    b.elementwise(b.batch_size * x.elements, backward_reads=1)  # product with a constant


def _activation(b: GraphBuilder, x: Feature, style: NormFree, *, products: int = 0) -> None:
    """The activation and what it is multiplied with: constants, one kernel each."""
    more = products + style.scaled_activation
    b.elementwise(
        b.batch_size * x.elements,
        reads=1 + more,
        writes=1 + more,
        kernels=1 + more,
        backward_reads=2 + more,
        backward_writes=1 + more,
    )
