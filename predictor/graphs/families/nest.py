"""Nested transformers: attention inside image blocks that merge (Zhang et al. arXiv 2105.12723)."""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from ..registry import family
from ..workload import Workload
from .vision_blocks import encoder_layer, linear_classifier, patches


@family("nest")
def nest(
    b: GraphBuilder,
    work: Workload,
    *,
    widths: Sequence[int],
    depths: Sequence[int],
    heads: Sequence[int],
    patch: int = 4,
    classes: int = 1000,
) -> None:
    """The first of L levels has 4^(L-1) blocks of positions, each next level a quarter of them."""
    x = patches(b, work, widths[0], patch)
    blocks = 4 ** (len(widths) - 1)
    for level, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        if level:
            x = _merge(b, x, width)
            blocks //= 4
        b.concat(x)
        b.parameters(x.elements)
        b.elementwise(b.batch_size * x.elements, backward_reads=1)
        with b.repeat(depth):
            encoder_layer(
                b, work, x.positions // blocks, width, heads[level], batch=b.batch_size * blocks
            )
        b.concat(x)
    b.layer_norm(b.batch_size * x.positions, x.channels)
    b.global_pool(x)
    linear_classifier(b, x.channels, classes)


def _merge(b: GraphBuilder, x: Feature, width: int) -> Feature:
    """3x3 convolution, norm over channels (copied there and back), 3x3 max-pool of stride 2."""
    x = b.conv(x, width, 3, bias=True)
    b.concat(x)
    b.layer_norm(b.batch_size * x.positions, width)
    b.concat(x)
    return b.pool(x, 3, stride=2, padding=1)
