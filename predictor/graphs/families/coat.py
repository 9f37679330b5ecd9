"""CoaT-Lite: factorised attention with convolutional positions (Xu et al., arXiv 2104.06399)."""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from ..registry import family
from ..workload import Workload
from .image import image_input
from .vision_blocks import feed_forward, linear_classifier, special_tokens

KERNELS = ((3, 2), (5, 3), (7, 3))  # kernel of the relative positions, heads that have it


@family("coat_lite")
def coat_lite(
    b: GraphBuilder,
    work: Workload,
    *,
    widths: Sequence[int],
    depths: Sequence[int],
    ffn_ratios: Sequence[int] = (4, 4, 4, 4),
    heads: int = 8,
    classes: int = 1000,
) -> None:
    """Four stages, each with its class token; the last one classifies.

    The convolutions of positions are shared by the layers of a stage.
    """
    x = image_input(b, work)
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        patch = 2 if stage else 4
        x = b.conv(x, width, patch, stride=patch, padding=0, bias=True, data_gradient=stage > 0)
        b.concat(x)
        b.layer_norm(b.batch_size * x.positions, width)
        special_tokens(b, 1, x.positions + 1, width)
        for layers, shared in ((1, False), (depth - 1, True)):
            if layers:
                with b.repeat(layers):
                    _layer(b, x, heads, ffn_ratios[stage] * width, shared)
        if stage < len(widths) - 1:
            b.concat(x)
    b.layer_norm(b.batch_size * (x.positions + 1), x.channels)
    linear_classifier(b, x.channels, classes)


def _layer(b: GraphBuilder, x: Feature, heads: int, hidden: int, shared: bool) -> None:
    tokens, width = x.positions + 1, x.channels
    rows, head, groups = b.batch_size * tokens, width // heads, b.batch_size * heads
    b.concat(x)
    b.conv(x, width, 3, groups=width, bias=True, shared=shared)
    b.add(x)
    b.concat(rows * width)
    b.layer_norm(rows, width)
    b.linear(rows, width, 3 * width)
    b.concat(rows * width)
    b.softmax(groups * head, tokens)
    b.concat(2 * rows * width)
    b.batched_matmul(groups, head, head, tokens)
    b.batched_matmul(groups, tokens, head, head)
    b.concat(x)
    for kernel, split in KERNELS:
        part = x.with_channels(split * head)
        b.conv(part, part.channels, kernel, groups=part.channels, bias=True, shared=shared)
    b.concat(x)
    b.multiply(x)
    b.concat(rows * width)
    b.elementwise(rows * width, reads=3, writes=2, kernels=2, backward_reads=2)
    b.concat(rows * width)
    b.linear(rows, width, width)
    b.add(rows * width)
    b.layer_norm(rows, width)
    feed_forward(b, rows, width, hidden)
    b.add(rows * width)
