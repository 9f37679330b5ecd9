"""SqueezeNet 1.0 and 1.1 (Iandola et al., arXiv 1602.07360)."""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from . import Workload, family
from .image import image_input


@family("squeezenet")
def squeezenet(
    b: GraphBuilder,
    work: Workload,
    *,
    stem: Sequence[int] = (96, 7),
    fires: Sequence[Sequence[int]] = ((16, 16, 32), (32, 48, 48, 64), (64,)),
    classes: int = 1000,
) -> None:
    """``stem`` is (width, kernel); ``fires`` the squeezed widths between the max-pools."""
    x = image_input(b, work)
    width, kernel = stem
    x = b.conv(x, width, kernel, stride=2, padding=0, bias=True, data_gradient=False)
    b.activation(x)
    for group in fires:
        x = b.pool(x, 3, stride=2, ceil=True)
        for squeezed in group:
            x = _fire(b, x, squeezed)
    b.dropout(x)
    x = b.conv(x, classes, 1, bias=True)
    b.activation(x)
    b.global_pool(x)
    b.cross_entropy(b.batch_size, classes)


def _fire(b: GraphBuilder, x: Feature, squeezed: int) -> Feature:
    narrow = b.conv(x, squeezed, 1, bias=True)
    b.activation(narrow)
    for kernel in (1, 3):
        b.activation(b.conv(narrow, 4 * squeezed, kernel, bias=True))
    wide = narrow.with_channels(8 * squeezed)
    b.concat(wide)
    return wide
