"""RegNet X and Y (Radosavovic et al., arXiv 2003.13678)."""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from . import Workload, family
from .image import classifier, conv_norm, image_input, squeeze_excite


@family("regnet")
def regnet(
    b: GraphBuilder,
    work: Workload,
    *,
    depths: Sequence[int],
    widths: Sequence[int],
    group_width: int,
    se_ratio: float = 0.0,
    stem: int = 32,
    classes: int = 1000,
) -> None:
    """Four stages of residual blocks with grouped 3x3 convolutions and no bottleneck."""
    x = conv_norm(b, image_input(b, work), stem, 3, stride=2, first=True)
    for depth, width in zip(depths, widths, strict=True):
        x = _block(b, x, width, 2, group_width, se_ratio)
        if depth > 1:
            with b.repeat(depth - 1):
                x = _block(b, x, width, 1, group_width, se_ratio)
    classifier(b, x, classes)


def _block(
    b: GraphBuilder, x: Feature, width: int, stride: int, group_width: int, se_ratio: float
) -> Feature:
    groups = width // min(group_width, width)
    y = conv_norm(b, x, width, 1)
    y = conv_norm(b, y, width, 3, stride=stride, groups=groups)
    if se_ratio:
        squeeze_excite(b, y, round(x.channels * se_ratio))
    y = conv_norm(b, y, width, 1, act=False)
    if stride > 1 or x.channels != width:
        conv_norm(b, x, width, 1, stride=stride, act=False)
    b.add(y)
    b.activation(y)
    return y
