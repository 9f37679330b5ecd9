"""BERT and its relatives: BioBERT, DistilBERT, Megatron BERT.

Devlin et al. arXiv 1810.04805; Sanh et al. arXiv 1910.01108; Shoeybi et al. arXiv 1909.08053.
"""

from __future__ import annotations

from math import ceil

from ..builder import GraphBuilder
from . import Workload, family
from .transformer import Block, feed_forward, norm, self_attention, vocab_share

PREDICTIONS_PER_TOKEN = 20 / 128  # max_predictions_per_seq of BERT: 20 at 128 tokens, 80 at 512


@family("bert")
def bert(
    b: GraphBuilder,
    work: Workload,
    *,
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
    seq, rows = work.tokens, b.batch_size * work.tokens
    block = Block.of(hidden, heads, ffn or 4 * hidden, joint_projections=pre_norm, work=work)
    rows_of_vocab = vocab_share(vocab, work.tensor_parallel, vocab_divisor)
    b.input(3 * seq)
    embed(b, block, rows, rows_of_vocab, max(max_position, seq), type_vocab, normed=not pre_norm)
    encoder(b, block, seq, layers)
    if pre_norm:
        norm(b, block, rows)
    if head != "pretrain":
        task_head(b, hidden, seq, head, classes)
        return
    if all_positions:
        predictions = seq
    masked_language_head(
        b, hidden, hidden, rows_of_vocab, predictions or ceil(PREDICTIONS_PER_TOKEN * seq)
    )
    if next_sentence:
        pooled_classifier(b, hidden, 2)


def embed(
    b: GraphBuilder,
    block: Block,
    rows: int,
    vocab: int,
    max_position: int,
    type_vocab: int,
    *,
    width: int | None = None,
    shared: bool = False,
    normed: bool = True,
) -> None:
    """Word, position and segment embeddings of ``width``, summed, ``normed``, dropped out."""
    width = width or block.hidden
    tables = [size for size in (vocab, max_position, type_vocab) if size]
    for size in tables:
        b.embedding(rows, width, size, shared=shared)
    for _ in tables[1:]:
        b.elementwise(rows * width, reads=2, backward_writes=0)
    if normed:
        norm(b, block, rows, width)
    b.dropout(rows * width)


def encoder(b: GraphBuilder, block: Block, seq_len: int, layers: int) -> None:
    """``layers`` equal encoder layers."""
    with b.repeat(layers):
        self_attention(b, block, seq_len)
        feed_forward(b, block, b.batch_size * seq_len)


def masked_language_head(
    b: GraphBuilder, hidden: int, embedding: int, vocab: int, predictions: int
) -> None:
    """Gather the masked positions, dense + GELU + norm, tied vocabulary GEMM with bias, loss."""
    rows = b.batch_size * predictions
    b.elementwise(rows * hidden, backward_reads=1)
    b.linear(rows, hidden, embedding)
    b.activation(rows * embedding, "gelu")
    b.layer_norm(rows, embedding)
    b.linear(rows, embedding, vocab, bias=False, shared=True)
    b.parameters(vocab)
    b.elementwise(rows * vocab, reads=1)
    b.cross_entropy(rows, vocab)


def pooled_classifier(b: GraphBuilder, hidden: int, classes: int) -> None:
    """Dense + tanh on the first token, then a classifier."""
    b.linear(b.batch_size, hidden, hidden)
    b.activation(b.batch_size * hidden, "tanh")
    b.linear(b.batch_size, hidden, classes)
    b.cross_entropy(b.batch_size, classes)


def task_head(b: GraphBuilder, hidden: int, seq_len: int, head: str, classes: int) -> None:
    """The head of fine-tuning: answer span, token labels or a sentence class."""
    if head == "squad":
        b.linear(b.batch_size * seq_len, hidden, 2)
        for _ in range(2):
            b.elementwise(b.batch_size * seq_len)
            b.cross_entropy(b.batch_size, seq_len)
    elif head == "ner":
        b.dropout(b.batch_size * seq_len * hidden)
        b.linear(b.batch_size * seq_len, hidden, classes)
        b.cross_entropy(b.batch_size * seq_len, classes)
    else:
        b.dropout(b.batch_size * hidden)
        pooled_classifier(b, hidden, classes)
