"""VoVNet, one-shot aggregation (Lee et al. arXiv 1904.09730; with gates arXiv 1911.06667)."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import GraphError
from ..builder import Feature, GraphBuilder
from ..registry import family
from ..workload import Workload
from .byob_blocks import RowStyle, convolve, norm_act
from .image import channel_attention, classifier, gate, image_input

ATTENTION = ("", "ese", "eca")


@family("vovnet")
def vovnet(
    b: GraphBuilder,
    work: Workload,
    *,
    inner: Sequence[int],
    widths: Sequence[int],
    blocks: Sequence[int],
    layers: int = 5,
    stem: Sequence[int] = (64, 64, 128),
    residual: bool = True,
    depthwise: bool = False,
    attention: str = "ese",
    norm: str = "batch",
    classes: int = 1000,
) -> None:
    """An image classifier.

    A block runs ``layers`` convolutions of a stage's ``inner`` width one behind the other and
    joins all of them with its input into the stage's width. The last block of a stage has
    the gate; all but the first add their input where ``residual``.
    """
    if attention not in ATTENTION:
        raise GraphError(f"attention={attention!r} is not known: '', ese, eca")
    style = RowStyle(norm=norm)
    x = convolve(b, image_input(b, work), stem[0], 3, style, stride=2, first=True)
    x = _layer(b, x, stem[1], 1, style, depthwise)
    x = _layer(b, x, stem[2], 2, style, depthwise)
    for stage, (narrow, width, repeats) in enumerate(zip(inner, widths, blocks, strict=True)):
        if stage:
            x = b.pool(x, 3, stride=2, ceil=True)
        x = _aggregate(b, x, narrow, width, layers, style, depthwise)
        if repeats > 1:
            with b.repeat(repeats - 1):
                x = _aggregate(b, x, narrow, width, layers, style, depthwise)
                if residual:
                    b.add(x)
        if attention == "ese":
            b.conv(b.global_pool(x), width, 1, bias=True)
            b.activation(b.batch_size * width)
            gate(b, x)
        elif attention == "eca":
            channel_attention(b, x)
    classifier(b, x, classes)


def _layer(
    b: GraphBuilder, x: Feature, width: int, stride: int, style: RowStyle, depthwise: bool
) -> Feature:
    if not depthwise:
        return convolve(b, x, width, 3, style, stride=stride)
    y = b.conv(x, x.channels, 3, stride=stride, groups=x.channels)
    y = b.conv(y, width, 1)
    norm_act(b, y, style.norm)
    return y


def _aggregate(
    b: GraphBuilder,
    x: Feature,
    inner: int,
    width: int,
    layers: int,
    style: RowStyle,
    depthwise: bool,
) -> Feature:
    y, left = x, layers
    if depthwise and x.channels != inner:
        y = convolve(b, x, inner, 1, style)
    if y.channels != inner:
        y, left = _layer(b, y, inner, 1, style, depthwise), layers - 1
    if left:
        with b.repeat(left):
            y = _layer(b, y, inner, 1, style, depthwise)
    joined = y.with_channels(x.channels + layers * inner)
    b.concat(joined)
    return convolve(b, joined, width, 1, style)
