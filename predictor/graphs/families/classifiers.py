"""Image classifiers whose sizes people vary: VGG, AlexNet, vision transformers.

Simonyan and Zisserman, arXiv 1409.1556; Krizhevsky arXiv 1404.5997; Dosovitskiy et al. arXiv
2010.11929; Touvron et al. arXiv 2012.12877.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from . import Workload, family
from .image import image_input

GRID = (7, 7)  # positions that the first fully connected layer of VGG sees


@family("vgg")
def vgg(
    b: GraphBuilder,
    work: Workload,
    *,
    convolutions: Sequence[int],
    batch_norm: bool = False,
    hidden: int = 4096,
    classes: int = 1000,
) -> None:
    """Five stages of 3x3 convolutions with bias, ``convolutions[i]`` in stage i."""
    x = image_input(b, work)
    norm = "batch" if batch_norm else "none"
    for stage, layers in enumerate(convolutions):
        width = min(64 * 2**stage, 512)
        x = b.conv_norm(x, width, 3, norm=norm, bias=True, data_gradient=stage > 0)
        if layers > 1:
            with b.repeat(layers - 1):
                x = b.conv_norm(x, width, 3, norm=norm, bias=True)
        x = b.pool(x, 2)
    _fully_connected(b, x if x.size == GRID else b.upsample(x, GRID), hidden, classes)


@family("alexnet")
def alexnet(
    b: GraphBuilder,
    work: Workload,
    *,
    widths: Sequence[int] = (64, 192, 384, 256, 256),
    response_norm: bool = False,
    hidden: int = 4096,
    classes: int = 1000,
) -> None:
    """Five convolutions with bias and ReLU, three overlapping max-pools, three linear layers.

    One tower; ``response_norm`` puts local response normalisation behind the first two (2012).
    """
    x = image_input(b, work)
    for layer, width in enumerate(widths):
        if layer:
            x = b.conv(x, width, 5 if layer == 1 else 3, bias=True)
        else:
            x = b.conv(x, width, 11, stride=4, padding=2, bias=True, data_gradient=False)
        b.activation(x)
        if response_norm and layer < 2:
            b.elementwise(x, backward_reads=3)
        if layer in (0, 1, len(widths) - 1):
            x = b.pool(x, 3, stride=2)
    _fully_connected(b, x, hidden, classes)


def _fully_connected(b: GraphBuilder, x: Feature, hidden: int, classes: int) -> None:
    """Two hidden layers with ReLU and dropout, the class layer, cross entropy."""
    inputs = x.elements
    for _ in range(2):
        b.dense(b.batch_size, inputs, hidden)
        b.dropout(b.batch_size * hidden)
        inputs = hidden
    b.linear(b.batch_size, hidden, classes)
    b.cross_entropy(b.batch_size, classes)


@family("vit")
def vit(
    b: GraphBuilder,
    work: Workload,
    *,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    ffn: int = 0,
    patch: int = 16,
    special_tokens: int = 1,
    dropout: bool = False,
    classes: int = 1000,
) -> None:
    """An image classifier on patches of ``patch`` pixels; ``ffn`` 0 means 4 x ``hidden``.

    ``special_tokens``: class (and distillation) tokens.
    """
    x = image_input(b, work)
    x = b.conv(x, hidden, patch, stride=patch, padding=0, bias=True, data_gradient=False)
    tokens = x.positions + special_tokens
    rows = b.batch_size * tokens
    b.concat(rows * hidden)
    if special_tokens:
        b.parameters(special_tokens * hidden, special_tokens)
    b.parameters(tokens * hidden)  # positions
    b.move(rows * hidden)
    with b.repeat(layers):
        vit_layer(b, work, tokens, hidden, heads, ffn or 4 * hidden, dropout)
    b.layer_norm(rows, hidden)
    for _ in range(max(special_tokens, 1)):
        b.linear(b.batch_size, hidden, classes)
        b.cross_entropy(b.batch_size, classes)


def vit_layer(
    b: GraphBuilder,
    work: Workload,
    tokens: int,
    hidden: int,
    heads: int,
    ffn: int,
    dropout: bool = False,
) -> None:
    """Attention and feed-forward layer, a norm before and a residual behind each."""
    rows, share, flash = b.batch_size * tokens, work.tensor_parallel, work.flash_attention
    width, wide = hidden // share, ffn // share
    b.layer_norm(rows, hidden)
    b.linear(rows, hidden, 3 * width)
    if not flash:
        b.concat(rows * 3 * width)
    b.attention(heads // share, tokens, tokens, hidden // heads, flash=flash, dropout=dropout)
    b.concat(rows * width)
    b.linear(rows, width, hidden)
    for branch in ("attention", "feed-forward"):
        if branch == "feed-forward":
            b.layer_norm(rows, hidden)
            b.dense(rows, hidden, wide, "gelu")
            b.linear(rows, wide, hidden)
        if dropout:
            b.dropout(rows * hidden)
        b.add(rows * hidden)
