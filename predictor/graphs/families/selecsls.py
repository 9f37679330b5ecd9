"""SelecSLS, selective long and short range skips (Mehta et al., arXiv 1907.00837)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ..builder import Feature, GraphBuilder
from ..registry import family
from ..workload import Workload
from .image import classifier, conv_norm, image_input


@family("selecsls")
def selecsls(
    b: GraphBuilder,
    work: Workload,
    *,
    levels: Sequence[Sequence[int]],
    head: Sequence[Sequence[int]],
    stem: int = 32,
    classes: int = 1000,
) -> None:
    """An image classifier.

    A level is the inner width of its blocks, then the output width of each: the first is
    strided, and the others also take its output. A row of ``head`` is channels, kernel, stride.
    """
    x = conv_norm(b, image_input(b, work), stem, 3, stride=2, first=True)
    for inner, *widths in levels:
        x = _block(b, x, inner, widths[0], 2, 0)
        skip = x.channels
        for width, run in groupby(widths[1:]):
            x = _block(b, x, inner, width, 1, skip)
            more = len(list(run)) - 1
            if more:
                with b.repeat(more):
                    x = _block(b, x, inner, width, 1, skip)
    for channels, kernel, stride in head:
        x = conv_norm(b, x, channels, kernel, stride=stride)
    classifier(b, x, classes)


def _block(b: GraphBuilder, x: Feature, inner: int, width: int, stride: int, skip: int) -> Feature:
    y = conv_norm(b, x, inner, 3, stride=stride)
    for _ in range(2):
        y = conv_norm(b, y, inner, 1)
        y = conv_norm(b, y, inner // 2, 3)
    joined = y.with_channels(2 * inner + skip)
    b.concat(joined)
    return conv_norm(b, joined, width, 1)
