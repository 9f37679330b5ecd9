"""Vision transformers with a convolutional front, relative positions, or parallel branches.

Dosovitskiy et al. arXiv 2010.11929 (hybrids); Touvron et al. arXiv 2203.09795 (parallel branches);
the position network is that of Swin v2 (arXiv 2111.09883). Variants as timm names them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import GraphBuilder
from . import Workload, family
from .image import image_input
from .resnet import BlockStyle, residual_stages, stem
from .vision_blocks import (
    attention,
    distance_bias,
    encoder_layer,
    feed_forward,
    linear_classifier,
    patches,
    positions,
    residual,
    special_tokens,
)


@family("vit_hybrid")
def vit_hybrid(
    b: GraphBuilder,
    work: Workload,
    *,
    blocks: Sequence[int],
    layers: int,
    hidden: int,
    heads: int,
    ffn: int = 0,
    patch: int = 1,
    deep_stem: bool = False,
    classes: int = 1000,
) -> None:
    """A ResNet of ``blocks`` per stage, cut into patches of its positions, then ViT layers.

    ``deep_stem`` is the ResNet-D with batch norm; else group norm and standardised weights.
    """
    norm = "batch" if deep_stem else "group"
    x = stem(b, image_input(b, work), (32, 32, 64) if deep_stem else (), norm)
    x = [x, *residual_stages(b, x, blocks, BlockStyle(average_down=deep_stem, norm=norm))][-1]
    x = b.conv(x, hidden, patch, stride=patch, padding=0, bias=True)
    b.concat(x)
    tokens = x.positions + 1
    special_tokens(b, 1, tokens, hidden)
    positions(b, b.batch_size * tokens, tokens, hidden)
    with b.repeat(layers):
        encoder_layer(b, work, tokens, hidden, heads, hidden=ffn)
    b.layer_norm(b.batch_size * tokens, hidden)
    linear_classifier(b, hidden, classes)


@family("vit_relpos")
def vit_relpos(
    b: GraphBuilder,
    work: Workload,
    *,
    layers: int,
    hidden: int,
    heads: int,
    patch: int = 16,
    position_hidden: int = 128,
    shared_positions: bool = False,
    class_token: bool = False,
    qkv_bias: bool = False,
    post_norm: bool = False,
    pooled_norm: bool = False,
    classes: int = 1000,
) -> None:
    """No position embedding; a network of distances adds to the scores of each layer (or all)."""
    x = patches(b, work, hidden, patch)
    tokens = x.positions + class_token
    if class_token:
        special_tokens(b, 1, tokens, hidden)
    with b.repeat(1 if shared_positions else layers):
        distance_bias(b, x.size, position_hidden, heads, tokens)
    with b.repeat(layers):
        encoder_layer(
            b,
            work,
            tokens,
            hidden,
            heads,
            bias=qkv_bias,
            scale=not post_norm,
            score_terms=1,
            post_norm=post_norm,
        )
    b.global_pool(x)
    b.layer_norm(b.batch_size * (1 if pooled_norm else tokens), hidden)
    linear_classifier(b, hidden, classes)


@family("vit_parallel")
def vit_parallel(
    b: GraphBuilder,
    work: Workload,
    *,
    layers: int,
    hidden: int,
    heads: int,
    patch: int = 16,
    branches: int = 2,
    classes: int = 1000,
) -> None:
    """Each layer has ``branches`` attentions side by side, then as many feed-forward layers."""
    tokens = patches(b, work, hidden, patch).positions + 1
    special_tokens(b, 1, tokens, hidden)
    rows = b.batch_size * tokens
    positions(b, rows, tokens, hidden)
    with b.repeat(layers * branches):
        b.layer_norm(rows, hidden)
        attention(b, work, tokens, hidden, heads)
        residual(b, rows * hidden, hidden)
        b.layer_norm(rows, hidden)
        feed_forward(b, rows, hidden, 4 * hidden)
        residual(b, rows * hidden, hidden)
    b.layer_norm(rows, hidden)
    linear_classifier(b, hidden, classes)
