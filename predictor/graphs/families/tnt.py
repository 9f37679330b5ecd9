"""Transformer in transformer (Han et al., arXiv 2103.00112)."""

from __future__ import annotations

from ..builder import Feature, GraphBuilder
from . import Workload, family
from .image import image_input
from .vision_blocks import encoder_layer, linear_classifier, positions, special_tokens

INNER_HEADS = 4
STRIDE = 4


@family("tnt")
def tnt(
    b: GraphBuilder,
    work: Workload,
    *,
    hidden: int,
    inner: int,
    heads: int,
    layers: int = 12,
    patch: int = 16,
    classes: int = 1000,
) -> None:
    """Layers on the pixels inside each patch feed layers on the patches."""
    x = b.conv(image_input(b, work), inner, 7, stride=STRIDE, bias=True, data_gradient=False)
    grid = Feature(inner, tuple(n // patch for n in work.image))
    pixels, groups = (patch // STRIDE) ** 2, b.batch_size * grid.positions
    flat, rows = pixels * inner, groups * pixels
    for _ in range(2):
        b.concat(x)
    positions(b, rows, pixels, inner)
    b.layer_norm(groups, flat)
    b.linear(groups, flat, hidden)
    b.layer_norm(groups, hidden)
    tokens = grid.positions + 1
    special_tokens(b, 1, tokens, hidden)
    positions(b, b.batch_size * tokens, tokens, hidden)
    with b.repeat(layers):
        encoder_layer(b, work, pixels, inner, INNER_HEADS, batch=groups, bias=False)
        b.layer_norm(rows, inner)
        b.linear(groups, flat, hidden)
        b.add(groups * hidden)
        b.concat(b.batch_size * tokens * hidden)
        encoder_layer(b, work, tokens, hidden, heads, bias=False)
    b.layer_norm(b.batch_size * tokens, hidden)
    linear_classifier(b, hidden, classes)
