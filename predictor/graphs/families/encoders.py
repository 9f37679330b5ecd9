"""Bidirectional encoders: BERT and its relatives, ELECTRA, DeBERTa.

Devlin et al. arXiv 1810.04805; Sanh et al. arXiv 1910.01108; Shoeybi et al. arXiv 1909.08053;
Clark et al. arXiv 2003.10555; He et al. arXiv 2006.03654.
"""

from __future__ import annotations

from math import ceil

from ..builder import Feature, GraphBuilder
from .transformer import Block, feed_forward, norm, residual, self_attention, vocab_share

PREDICTIONS_PER_TOKEN = 20 / 128  # max_predictions_per_seq of BERT: 20 at 128 tokens, 80 at 512
MASKED = 0.155  # int((mask_prob + 0.005) x seq_len) positions, as ELECTRA's input pipeline has it


def bert(
    b: GraphBuilder,
    layers: int,
    hidden: int,
    heads: int,
    ffn: int | None = None,
    vocab: int = 30522,
    vocab_divisor: int = 1,
    max_position: int = 512,
    type_vocab: int = 2,
    pre_norm: bool = False,
    head: str = "pretrain",
    predictions: int | None = None,
    all_positions: bool = False,
    next_sentence: bool = True,
    classes: int = 2,
) -> None:
    """A bidirectional encoder on ``work.tokens`` tokens with one of four heads.

    ``head`` is ``pretrain`` (masked language model on ``predictions`` positions of a sequence, or
    on ``all_positions``, plus next sentence), ``squad``, ``ner`` or ``classification``.
    """
    seq, rows = b.work.tokens, b.batch_size * b.work.tokens
    block = Block.of(hidden, heads, ffn or 4 * hidden, b.work, joint_projections=pre_norm)
    table = vocab_share(vocab, b.work.tensor_parallel, vocab_divisor)
    b.input(3 * seq)
    _embed(b, block, rows, (table, max(max_position, seq), type_vocab), normed=not pre_norm)
    _encoder(b, block, seq, layers)
    if pre_norm:
        norm(b, block, rows)
    if head != "pretrain":
        _task_head(b, hidden, seq, head, classes)
        return
    every = all_positions or b.work.scores_every_token
    masked = seq if every else predictions or ceil(PREDICTIONS_PER_TOKEN * seq)
    _masked_language_head(b, hidden, hidden, table, masked)
    if next_sentence:
        _pooled_classifier(b, hidden, 2)


def electra(
    b: GraphBuilder,
    layers: int,
    hidden: int,
    heads: int,
    ffn: int | None = None,
    vocab: int = 30522,
    max_position: int = 512,
    head: str = "pretrain",
    predictions: int | None = None,
    classes: int = 2,
) -> None:
    """Pre-training of both networks, or fine-tuning of the discriminator (``head`` as in bert).

    A generator of a quarter of the widths fills masked tokens, the discriminator tells which were
    replaced; they share the embedding tables.
    """

    def block(fraction: float) -> Block:
        sizes = int(hidden * fraction), max(1, ceil(heads * fraction))
        wide = int((ffn or 4 * hidden) * fraction)
        return Block.of(*sizes, wide, b.work, joint_projections=False)

    seq, rows = b.work.tokens, b.batch_size * b.work.tokens
    discriminator, tables = block(1.0), (vocab, max_position, 2)
    b.input(3 * seq)
    if head == "pretrain":
        generator, masked = block(0.25), predictions or int(MASKED * seq)
        _embed(b, discriminator, rows, tables, shared=True)
        b.linear(rows, hidden, generator.hidden)
        _encoder(b, generator, seq, layers)
        _masked_language_head(b, generator.hidden, hidden, vocab, masked)
        with b.forward_only():  # Gumbel sampling of the replaced tokens, scattered into the input
            b.elementwise(b.batch_size * masked * vocab, kernels=5, reads=5, writes=4)
            b.elementwise(rows, kernels=6, reads=6, writes=6)
    _embed(b, discriminator, rows, tables)
    _encoder(b, discriminator, seq, layers)
    if head != "pretrain":
        _task_head(b, hidden, seq, head, classes)
        return
    b.dense(rows, hidden, hidden, "gelu")
    b.linear(rows, hidden, 1)
    b.regression_loss(rows)


def deberta(
    b: GraphBuilder,
    layers: int,
    hidden: int,
    heads: int,
    ffn: int,
    vocab: int = 128100,
    position_buckets: int = 256,
    conv_kernel: int = 0,
    head: str = "classification",
    classes: int = 3,
) -> None:
    """Fine-tuning of DeBERTa v2 with a head as in bert.

    Disentangled attention over content and bucketed relative positions, which share the content
    projections (``share_att_key``); a convolution beside the first layer where it has a kernel.
    """
    seq, rows = b.work.tokens, b.batch_size * b.work.tokens
    block = Block.of(hidden, heads, ffn, joint_projections=False)
    positions, own_heads = 2 * position_buckets, b.batch_size * heads

    def layer() -> None:
        """Content-content, content-position and position-content scores, weighted values."""
        scores = own_heads * seq * seq
        for _ in range(3):
            b.linear(rows, hidden, hidden)
            b.move(rows * hidden)
        b.batched_matmul(own_heads, seq, seq, block.head_dim)
        b.elementwise(scores)
        for _ in ("content to position", "position to content"):
            b.linear(positions, hidden, hidden, shared=True)
            b.move(own_heads * positions * block.head_dim)
            b.batched_matmul(own_heads, seq, positions, block.head_dim)
            b.chain(scores, (2, 1, 1), (2, 2, 1))  # gather by distance
            b.add(scores)
        b.elementwise(scores, backward_writes=0)
        b.softmax(own_heads * seq, seq)
        b.dropout(scores)
        b.batched_matmul(own_heads, seq, block.head_dim, seq)
        b.move(rows * hidden)
        b.linear(rows, hidden, hidden)
        residual(b, block, rows)
        norm(b, block, rows)
        feed_forward(b, block, rows)

    b.input(3 * seq)
    _embed(b, block, rows, (vocab,))
    b.parameters(positions * hidden)
    norm(b, block, positions)
    layer()
    if conv_kernel:
        b.conv(Feature(hidden, (seq,)), hidden, conv_kernel, bias=True)
        b.activation(rows * hidden, "gelu")
        residual(b, block, rows)
        norm(b, block, rows)
    with b.repeat(layers - 1):
        layer()
    _task_head(b, hidden, seq, head, classes)


def _embed(
    b: GraphBuilder,
    block: Block,
    rows: int,
    tables: tuple[int, ...],
    *,
    shared: bool = False,
    normed: bool = True,
) -> None:
    """Word, position and segment embeddings that there are, summed, ``normed``, dropped out."""
    tables = tuple(size for size in tables if size)
    for size in tables:
        b.embedding(rows, block.hidden, size, shared=shared)
    for _ in tables[1:]:
        b.elementwise(rows * block.hidden, reads=2, backward_writes=0)
    if normed:
        norm(b, block, rows, block.hidden)
    b.dropout(rows * block.hidden)


def _encoder(b: GraphBuilder, block: Block, seq_len: int, layers: int) -> None:
    """``layers`` equal encoder layers."""
    with b.repeat(layers):
        self_attention(b, block, seq_len)
        feed_forward(b, block, b.batch_size * seq_len)


def _masked_language_head(
    b: GraphBuilder, hidden: int, embedding: int, vocab: int, predictions: int
) -> None:
    """Gather the masked positions, dense + GELU + norm, tied vocabulary GEMM with bias, loss."""
    rows = b.batch_size * predictions
    b.move(rows * hidden)
    b.dense(rows, hidden, embedding, "gelu")
    b.layer_norm(rows, embedding)
    b.linear(rows, embedding, vocab, bias=False, shared=True)
    b.parameters(vocab)
    b.elementwise(rows * vocab, reads=1)
    b.cross_entropy(rows, vocab)


def _pooled_classifier(b: GraphBuilder, hidden: int, classes: int) -> None:
    """Dense + tanh on the first token, then a classifier."""
    b.dense(b.batch_size, hidden, hidden, "tanh")
    b.linear(b.batch_size, hidden, classes)
    b.cross_entropy(b.batch_size, classes)


def _task_head(b: GraphBuilder, hidden: int, seq_len: int, head: str, classes: int) -> None:
    """The head of fine-tuning: answer span, token labels or a sentence class."""
    rows = b.batch_size * seq_len
    if head == "squad":
        b.linear(rows, hidden, 2)
        for _ in range(2):
            b.elementwise(rows)
            b.cross_entropy(b.batch_size, seq_len)
    elif head == "ner":
        b.dropout(rows * hidden)
        b.linear(rows, hidden, classes)
        b.cross_entropy(rows, classes)
    else:
        b.dropout(b.batch_size * hidden)
        _pooled_classifier(b, hidden, classes)
