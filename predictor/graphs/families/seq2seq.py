"""Encoder-decoder transformers for translation and summarisation: Transformer base/big, BART.

Vaswani et al. arXiv 1706.03762; Lewis et al. arXiv 1910.13461. One sample is a sentence pair:
``work.tokens`` source tokens and ``target_len`` target tokens.
"""

from __future__ import annotations

from ..builder import GraphBuilder
from . import Workload, family
from .transformer import (
    Block,
    cross_attention,
    feed_forward,
    language_head,
    norm,
    self_attention,
    vocab_share,
)


@family("seq2seq")
def seq2seq(
    b: GraphBuilder,
    work: Workload,
    *,
    encoder_layers: int,
    decoder_layers: int,
    hidden: int,
    heads: int,
    ffn: int,
    vocab: int,
    source_vocab: int = 0,
    max_position: int = 0,
    target_len: int | None = None,
    activation: str = "relu",
    pre_norm: bool = True,
    embedding_norm: bool = False,
    projection_bias: bool = True,
    final_bias: bool = False,
    inner_dropout: bool = False,
    label_smoothing: bool = True,
) -> None:
    """Teacher-forced training with cross entropy over all target positions.

    ``source_vocab`` 0 shares one table between source, target and output; ``max_position`` 0 means
    sinusoidal positions without weights. ``pre_norm`` adds a last norm to each stack.
    """
    source, target = work.tokens, target_len or work.tokens
    block = Block.of(
        hidden,
        heads,
        ffn,
        activation=activation,
        inner_dropout=inner_dropout,
        bias=projection_bias,
        joint_projections=False,
        work=work,
    )
    rows_of_vocab = vocab_share(vocab, work.tensor_parallel)
    b.input(source + 2 * target)
    _embed(b, block, source, source_vocab or rows_of_vocab, max_position, embedding_norm)
    with b.repeat(encoder_layers):
        self_attention(b, block, source)
        feed_forward(b, block, b.batch_size * source)
    if pre_norm:
        norm(b, block, b.batch_size * source)
    _embed(b, block, target, rows_of_vocab, max_position, embedding_norm, shared=not source_vocab)
    with b.repeat(decoder_layers):
        self_attention(b, block, target, causal=True)
        cross_attention(b, block, target, source)
        feed_forward(b, block, b.batch_size * target)
    if pre_norm:
        norm(b, block, b.batch_size * target)
    rows = b.batch_size * target
    language_head(b, rows, hidden, rows_of_vocab, bias=final_bias)
    if label_smoothing:
        b.elementwise(rows * rows_of_vocab, kernels=2, reads=1, writes=0.01, backward_reads=1)


def _embed(
    b: GraphBuilder,
    block: Block,
    seq_len: int,
    vocab: int,
    max_position: int,
    normed: bool,
    *,
    shared: bool = False,
) -> None:
    """Scaled token embeddings plus positions; the weights of learned positions are per side."""
    rows = b.batch_size * seq_len
    b.embedding(rows, block.hidden, vocab, shared=shared)
    b.elementwise(rows * block.hidden, backward_reads=1)
    if max_position:
        b.embedding(seq_len, block.hidden, max_position)
    b.elementwise(rows * block.hidden, reads=2, backward_writes=0)
    if normed:
        norm(b, block, rows)
    b.dropout(rows * block.hidden)
