"""PoolFormer: average pooling instead of attention (Yu et al., arXiv 2111.11418)."""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from . import Workload, family
from .image import image_input
from .vision_blocks import linear_classifier, residual


@family("poolformer")
def poolformer(
    b: GraphBuilder,
    work: Workload,
    *,
    widths: Sequence[int],
    depths: Sequence[int],
    classes: int = 1000,
) -> None:
    """Four stages of pooling and 1x1 convolutions, each branch weighted per channel."""
    x = image_input(b, work)
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        if stage:
            x = b.conv(x, width, 3, stride=2, bias=True)
        else:
            x = b.conv(x, width, 7, stride=4, padding=2, bias=True, data_gradient=False)
        with b.repeat(depth):
            _block(b, x)
    b.global_pool(x)
    b.layer_norm(b.batch_size, x.channels)
    linear_classifier(b, x.channels, classes)


def _block(b: GraphBuilder, x: Feature) -> None:
    elements = b.batch_size * x.elements
    b.group_norm(x)
    b.pool(x, 3, stride=1, padding=1)
    b.add(x)
    residual(b, elements, x.channels)
    b.group_norm(x)
    y = b.conv(x, 4 * x.channels, 1, bias=True)
    b.activation(y)
    b.conv(y, x.channels, 1, bias=True)
    residual(b, elements, x.channels)
