"""Vision transformers: ViT, DeiT, DeiT III, BEiT.

Dosovitskiy et al. arXiv 2010.11929; Touvron et al. arXiv 2012.12877 and 2204.07118; Bao et al.
arXiv 2106.08254.
"""

from __future__ import annotations

from ..builder import Feature, GraphBuilder
from . import Workload, family
from .image import image_input


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
    position_embedding: bool = True,
    special_positions: bool = True,
    relative_positions: bool = False,
    qkv_bias_parts: int = 3,
    layer_scale: bool = False,
    pre_logits: bool = False,
    final_norm: bool = True,
    dropout: bool = False,
    classes: int = 1000,
) -> None:
    """An image classifier on patches of ``patch`` pixels; ``ffn`` 0 means 4 x ``hidden``.

    ``special_tokens``: class (and distillation) tokens, with or without learned positions.
    ``relative_positions`` and ``qkv_bias_parts=2`` are BEiT's; ``layer_scale`` DeiT III's too.
    """
    x = image_input(b, work)
    x = b.conv(x, hidden, patch, stride=patch, padding=0, bias=True, data_gradient=False)
    tokens = _embed(b, x, special_tokens, position_embedding, special_positions)
    rows = b.batch_size * tokens
    with b.repeat(layers):
        if relative_positions:
            _relative_bias(b, x, tokens, heads)
        _attention(b, work, tokens, hidden, heads, qkv_bias_parts, dropout)
        _residual(b, rows, hidden, layer_scale, dropout)
        _feed_forward(b, work, rows, hidden, ffn or 4 * hidden)
        _residual(b, rows, hidden, layer_scale, dropout)
    b.layer_norm(rows if final_norm else b.batch_size, hidden)
    if pre_logits:
        b.linear(b.batch_size, hidden, hidden)
        b.activation(b.batch_size * hidden, "tanh")
    for _ in range(max(special_tokens, 1)):
        b.linear(b.batch_size, hidden, classes)
        b.cross_entropy(b.batch_size, classes)


def _embed(
    b: GraphBuilder, x: Feature, special: int, positions: bool, special_positions: bool
) -> int:
    """Patches to rows, special tokens in front, learned positions added; the token count."""
    tokens, width = x.positions + special, x.channels
    b.concat(b.batch_size * tokens * width)
    if special:
        b.parameters(special * width, special)
    if positions:
        b.parameters((tokens if special_positions else x.positions) * width)
        b.elementwise(b.batch_size * tokens * width, backward_reads=1)
    return tokens


def _attention(
    b: GraphBuilder,
    work: Workload,
    tokens: int,
    hidden: int,
    heads: int,
    bias_parts: int,
    dropout: bool,
) -> None:
    rows, share = b.batch_size * tokens, work.tensor_parallel
    width = hidden // share
    b.layer_norm(rows, hidden)
    b.linear(rows, hidden, 3 * width, bias=bias_parts == 3)
    if 0 < bias_parts < 3:
        b.parameters(bias_parts * width, bias_parts)
    if not work.flash_attention:
        b.concat(rows * 3 * width)
    b.attention(
        heads // share, tokens, tokens, hidden // heads, flash=work.flash_attention, dropout=dropout
    )
    b.concat(rows * width)
    b.linear(rows, width, hidden)


def _feed_forward(b: GraphBuilder, work: Workload, rows: int, hidden: int, ffn: int) -> None:
    width = ffn // work.tensor_parallel
    b.layer_norm(rows, hidden)
    b.linear(rows, hidden, width)
    b.activation(rows * width, "gelu")
    b.linear(rows, width, hidden)


def _residual(b: GraphBuilder, rows: int, hidden: int, layer_scale: bool, dropout: bool) -> None:
    if dropout:
        b.dropout(rows * hidden)
    if layer_scale:
        b.parameters(hidden)
        b.elementwise(
            rows * hidden,
            backward_reads=4,
            backward_writes=2,
            backward_kernels=3,
            function="mul",
        )
    b.add(rows * hidden)


def _relative_bias(b: GraphBuilder, x: Feature, tokens: int, heads: int) -> None:
    """A table of relative positions, gathered into a bias that is added to every score."""
    height, width = x.size
    entries = (2 * height - 1) * (2 * width - 1) + 3
    b.parameters(entries * heads)
    b.elementwise(heads * tokens * tokens, kernels=2)
    b.add(b.batch_size * heads * tokens * tokens)
