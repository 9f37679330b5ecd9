"""ELECTRA: a small generator fills masked tokens, the discriminator tells which were replaced.

Clark et al. arXiv 2003.10555. Both are trained in one step; they share the embedding tables.
"""

from __future__ import annotations

from math import ceil

from ..builder import GraphBuilder
from . import Workload, family
from .bert import embed, encoder, masked_language_head, task_head
from .transformer import Block

MASKED = 0.155  # int((mask_prob + 0.005) x seq_len) positions, as in the reference input pipeline


@family("electra")
def electra(
    b: GraphBuilder,
    work: Workload,
    *,
    layers: int,
    hidden: int,
    heads: int,
    ffn: int | None = None,
    vocab: int = 30522,
    max_position: int = 512,
    type_vocab: int = 2,
    generator_fraction: float = 0.25,
    head: str = "pretrain",
    predictions: int | None = None,
    classes: int = 2,
) -> None:
    """Pre-training of both networks, or fine-tuning of the discriminator (``head`` as in bert)."""
    seq, rows = work.tokens, b.batch_size * work.tokens
    discriminator = _block(hidden, heads, ffn or 4 * hidden, 1.0, work)
    b.input(3 * seq)
    if head == "pretrain":
        generator = _block(hidden, heads, ffn or 4 * hidden, generator_fraction, work)
        embed(b, discriminator, rows, vocab, max_position, type_vocab, shared=True)
        b.linear(rows, hidden, generator.hidden)
        encoder(b, generator, seq, layers)
        masked = predictions or int(MASKED * seq)
        masked_language_head(b, generator.hidden, hidden, vocab, masked)
        _sample(b, masked, seq, vocab)
    embed(b, discriminator, rows, vocab, max_position, type_vocab)
    encoder(b, discriminator, seq, layers)
    if head != "pretrain":
        task_head(b, hidden, seq, head, classes)
        return
    b.linear(rows, hidden, hidden)
    b.activation(rows * hidden, "gelu")
    b.linear(rows, hidden, 1)
    b.regression_loss(rows)


def _block(hidden: int, heads: int, ffn: int, fraction: float, work: Workload) -> Block:
    return Block.of(
        int(hidden * fraction),
        max(1, ceil(heads * fraction)),
        int(ffn * fraction),
        joint_projections=False,
        work=work,
    )


def _sample(b: GraphBuilder, masked: int, seq_len: int, vocab: int) -> None:
    """Gumbel sampling of the replaced tokens, and their scatter into the input."""
    with b.forward_only():
        b.elementwise(b.batch_size * masked * vocab, kernels=5, reads=5, writes=4)
        b.elementwise(b.batch_size * seq_len, kernels=6, reads=6, writes=6)
