"""Pooling-based vision transformers (Heo et al., arXiv 2103.16302)."""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from . import Workload, family
from .image import image_input
from .vision_blocks import encoder_layer, linear_classifier


@family("pit")
def pit(
    b: GraphBuilder,
    work: Workload,
    *,
    depths: Sequence[int],
    heads: Sequence[int],
    head_dim: int,
    patch: int = 16,
    stride: int = 8,
    special_tokens: int = 1,
    classes: int = 1000,
) -> None:
    """ViT stages with strided depthwise convolutions between; overlapping patches."""
    x = b.conv(
        image_input(b, work),
        head_dim * heads[0],
        patch,
        stride=stride,
        padding=0,
        bias=True,
        data_gradient=False,
    )
    b.parameters(x.elements)
    b.elementwise(b.batch_size * x.elements, backward_reads=1)
    b.parameters(special_tokens * x.channels)
    for stage, depth in enumerate(depths):
        if stage:
            x = _pool(b, x, head_dim * heads[stage], special_tokens)
        tokens = x.positions + special_tokens
        b.concat(b.batch_size * tokens * x.channels)
        with b.repeat(depth):
            encoder_layer(b, work, tokens, x.channels, heads[stage])
        b.concat(x)
    b.layer_norm(b.batch_size * special_tokens, x.channels)
    linear_classifier(b, x.channels, classes, heads=special_tokens)


def _pool(b: GraphBuilder, x: Feature, channels: int, special_tokens: int) -> Feature:
    """A 3x3 convolution of stride 2 per channel for positions, a linear layer for the tokens."""
    y = b.conv(x, channels, 3, stride=2, groups=x.channels, bias=True)
    b.linear(b.batch_size * special_tokens, x.channels, channels)
    return y
