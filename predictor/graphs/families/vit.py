"""Vision transformers: ViT and DeiT.

Dosovitskiy et al. arXiv 2010.11929; Touvron et al. arXiv 2012.12877.
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
    dropout: bool = False,
    classes: int = 1000,
) -> None:
    """An image classifier on patches of ``patch`` pixels; ``ffn`` 0 means 4 x ``hidden``.

    ``special_tokens``: class (and distillation) tokens.
    """
    x = image_input(b, work)
    x = b.conv(x, hidden, patch, stride=patch, padding=0, bias=True, data_gradient=False)
    tokens = _embed(b, x, special_tokens)
    rows = b.batch_size * tokens
    with b.repeat(layers):
        _attention(b, work, tokens, hidden, heads, dropout)
        _residual(b, rows, hidden, dropout)
        _feed_forward(b, work, rows, hidden, ffn or 4 * hidden)
        _residual(b, rows, hidden, dropout)
    b.layer_norm(rows, hidden)
    for _ in range(max(special_tokens, 1)):
        b.linear(b.batch_size, hidden, classes)
        b.cross_entropy(b.batch_size, classes)


def _embed(b: GraphBuilder, x: Feature, special: int) -> int:
    """Patches to rows, special tokens in front, learned positions added; the token count."""
    tokens, width = x.positions + special, x.channels
    b.concat(b.batch_size * tokens * width)
    if special:
        b.parameters(special * width, special)
    b.parameters(tokens * width)
    b.elementwise(b.batch_size * tokens * width, backward_reads=1)
    return tokens


def _attention(
    b: GraphBuilder, work: Workload, tokens: int, hidden: int, heads: int, dropout: bool
) -> None:
    rows, share = b.batch_size * tokens, work.tensor_parallel
    width = hidden // share
    b.layer_norm(rows, hidden)
    b.linear(rows, hidden, 3 * width)
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


def _residual(b: GraphBuilder, rows: int, hidden: int, dropout: bool) -> None:
    if dropout:
        b.dropout(rows * hidden)
    b.add(rows * hidden)
