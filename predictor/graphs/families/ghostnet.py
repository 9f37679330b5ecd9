"""GhostNet (Han et al., arXiv 1911.11907)."""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from ..registry import family
from ..workload import Workload
from .image import classifier, conv_norm, image_input, round_channels, squeeze_excite


@family("ghostnet")
def ghostnet(
    b: GraphBuilder,
    work: Workload,
    *,
    stages: Sequence[Sequence[float]],
    width: float = 1.0,
    stem: int = 16,
    head: int = 1280,
    classes: int = 1000,
) -> None:
    """Bottlenecks of ghost modules; a row is ``[repeats, kernel, stride, expanded, out, se]``."""
    x = conv_norm(b, image_input(b, work), round_channels(stem * width, 4), 3, stride=2, first=True)
    expanded = 0
    for repeats, kernel, stride, wide, out, se in stages:
        expanded = round_channels(wide * width, 4)
        channels = round_channels(out * width, 4)
        with b.repeat(int(repeats)):
            x = _bottleneck(b, x, expanded, channels, int(kernel), int(stride), se)
    x = b.global_pool(conv_norm(b, x, expanded, 1))
    x = b.conv(x, head, 1, bias=True)
    b.activation(x)
    classifier(b, x, classes, pool=False, dropout=True)


def _bottleneck(
    b: GraphBuilder, x: Feature, expanded: int, out: int, kernel: int, stride: int, se: float
) -> Feature:
    y = _ghost(b, x, expanded, act=True)
    if stride > 1:
        y = conv_norm(b, y, expanded, kernel, stride=stride, groups=expanded, act=False)
    if se:
        squeeze_excite(b, y, round_channels(expanded * se, 4))
    y = _ghost(b, y, out, act=False)
    if stride > 1 or x.channels != out:
        z = conv_norm(b, x, x.channels, kernel, stride=stride, groups=x.channels, act=False)
        conv_norm(b, z, out, 1, act=False)
    b.add(y)
    return y


def _ghost(b: GraphBuilder, x: Feature, out: int, *, act: bool) -> Feature:
    """Half of the channels from a 1x1, the other half from a depthwise 3x3 of those."""
    half = -(-out // 2)
    y = conv_norm(b, x, half, 1, act=act)
    conv_norm(b, y, half, 3, groups=half, act=act)
    b.concat(y.with_channels(2 * half))
    return y.with_channels(out)
