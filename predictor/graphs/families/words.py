"""Networks of words: T5, mT5 and Switch, Transformer base/big, BART, GNMT, LSTM, Transformer-XL.

Raffel et al. arXiv 1910.10683; Shazeer arXiv 2002.05202 (gated GELU of v1.1); Xue et al.
arXiv 2010.11934; Fedus et al. arXiv 2101.03961; Vaswani et al. arXiv 1706.03762; Lewis et al.
arXiv 1910.13461; Wu et al. arXiv 1609.08144: one sample is ``work.tokens`` source tokens and
``target_len`` target tokens. Language models: Zaremba et al. arXiv 1409.2329, word_language_model
of pytorch/examples; Dai et al. arXiv 1901.02860 (segment recurrence, relative attention); Grave et
al. arXiv 1609.04309 (adaptive softmax).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil

from ..builder import GraphBuilder, Options
from ..operator import DATA_GRADIENT, FORWARD, Kind
from .transformer import (
    WHOLE,
    Block,
    Mixture,
    cross_attention,
    feed_forward,
    language_head,
    moe_feed_forward,
    norm,
    residual,
    self_attention,
    vocab_share,
)

BUCKETS = 32  # relative position buckets of a T5 stack, shared by its layers


def t5(
    b: GraphBuilder,
    hidden: int,
    heads: int,
    ffn: int,
    head_dim: int = 64,
    layers: int | str = 0,
    encoder_layers: int = 0,
    decoder_layers: int = 0,
    target_len: int = 128,
    vocab: int = 32128,
    vocab_divisor: int = 1,
    activation: str = "gelu",
    tied: bool = False,
    bias: bool = False,
    layer_norm: bool = False,
    max_position: int = 0,
    experts: int = 0,
) -> None:
    """An encoder-decoder; ``layers`` (24, or ``24+24``) serves a stack without its own depth.

    ``activation="geglu"`` is gated. ``max_position`` gives learned positions in the place of
    relative ones, ``layer_norm`` and ``bias`` layers of GPT's kind (Megatron-LM). With ``experts``
    every second layer is a top-1 mixture.
    """
    gated = activation == "geglu"
    habits: Options = {"head_dim": head_dim, "bias": bias, "gated": gated}
    habits |= {"activation": "gelu_new" if gated else activation, "joint_projections": layer_norm}
    habits |= {"rms_norm": not layer_norm, "inner_dropout": not layer_norm}
    block = Block.of(hidden, heads, ffn, b.work, **habits)
    mixture = Mixture(experts, 1, ffn, work=replace(WHOLE, tensor_parallel=b.work.tensor_parallel))
    table = vocab_share(vocab, b.work.tensor_parallel, vocab_divisor)
    source, target = b.work.tokens, target_len
    b.input(source + 2 * target)
    first, _, second = str(layers).partition("+")
    sides = (
        (encoder_layers or int(first), source, 0),
        (decoder_layers or int(second or first), target, source),
    )
    for depth, seq, memory in sides:
        rows, shared = b.batch_size * seq, bool(memory)
        b.embedding(rows, hidden, table, shared=shared)
        if max_position:
            b.embedding(seq, hidden, max_position, shared=shared)
            b.elementwise(rows * hidden, reads=2, backward_writes=0)
        else:
            b.embedding(seq * seq, block.heads, BUCKETS)
        b.dropout(rows * hidden)
        sparse = depth // 2 if experts else 0
        for times, experts_of in ((depth - sparse, None), (sparse, mixture)):
            _layers(b, block, times, seq, memory, experts_of)
        norm(b, block, rows)
    language_head(b, b.batch_size * target, hidden, table, tied=tied, bias=layer_norm)


def seq2seq(
    b: GraphBuilder,
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
    inner_dropout: bool = False,
) -> None:
    """Teacher-forced training with smoothed cross entropy over all target positions.

    ``source_vocab`` 0 shares one table between source, target and output; ``max_position`` 0 means
    sinusoidal positions without weights. ``pre_norm`` adds a last norm to each stack.
    """
    source, target = b.work.tokens, target_len or b.work.tokens
    habits: Options = {"activation": activation, "joint_projections": False}
    block = Block.of(hidden, heads, ffn, b.work, inner_dropout=inner_dropout, **habits)
    table = vocab_share(vocab, b.work.tensor_parallel)
    b.input(source + 2 * target)
    sides = (
        (encoder_layers, source, 0, source_vocab or table),
        (decoder_layers, target, source, table),
    )
    for depth, seq, memory, words in sides:
        rows = b.batch_size * seq
        b.embedding(rows, hidden, words, shared=bool(memory) and not source_vocab)
        b.move(rows * hidden)  # scaled
        if max_position:
            b.embedding(seq, hidden, max_position)
        b.elementwise(rows * hidden, reads=2, backward_writes=0)
        if embedding_norm:
            norm(b, block, rows)
        b.dropout(rows * hidden)
        _layers(b, block, depth, seq, memory)
        if pre_norm:
            norm(b, block, rows)
    rows = b.batch_size * target
    language_head(b, rows, hidden, table)
    b.elementwise(rows * table, kernels=2, reads=1, writes=0.01, backward_reads=1)


def _layers(
    b: GraphBuilder, block: Block, times: int, seq: int, memory: int, experts: Mixture | None = None
) -> None:
    """Equal layers of an encoder, or of a decoder that sees ``memory`` encoder outputs."""
    with b.repeat(times):
        self_attention(b, block, seq, causal=bool(memory))
        if memory:
            cross_attention(b, block, seq, memory)
        if experts:
            moe_feed_forward(b, block, experts, b.batch_size * seq)
        else:
            feed_forward(b, block, b.batch_size * seq)


def gnmt(
    b: GraphBuilder,
    vocab: int = 32320,
    hidden: int = 1024,
    encoder_layers: int = 4,
    decoder_layers: int = 4,
    fused_attention: bool = False,
) -> None:
    """GNMT v2 on LSTM layers; a sentence pair is padded to ``work.tokens`` subwords a side.

    As simplified by NVIDIA DeepLearningExamples and MLPerf v0.6: attention is computed once from
    the first decoder layer and concatenated to the input of every later layer, so that all layers
    run over whole sequences.
    """
    steps, rows = b.work.tokens, b.batch_size * b.work.tokens

    def layer(width: int, *, bidirectional: bool = False, residual: bool = False) -> None:
        b.dropout(rows * width)
        b.rnn(steps, width, hidden, bidirectional=bidirectional)
        if residual:
            b.add(rows * hidden)

    b.input(2 * steps)
    b.embedding(rows, hidden, vocab)
    layer(hidden, bidirectional=True)
    layer(2 * hidden)
    if encoder_layers > 2:
        with b.repeat(encoder_layers - 2):
            layer(hidden, residual=True)
    b.embedding(rows, hidden, vocab, shared=True)
    layer(hidden)
    # normalised Bahdanau scores of all target steps against all source steps, softmax, context
    pairs, scored = rows * steps, float(rows * steps * hidden)
    b.linear(rows, hidden, hidden, bias=False)
    b.linear(rows, hidden, hidden, bias=False)
    b.parameters(2 * hidden + 1, 3)  # score vector, normalisation bias and scalar
    if fused_attention:  # one kernel each way keeps the sum and its tanh in registers
        b.chain(scored, (0.1, 0.0, 1), (0.2, 0.1, 1))
    else:
        b.chain(scored, (0.1, 1, 1), (2, 0.1, 1))  # query + key
        b.chain(scored, (1, 1, 1), (1, 0.01, 1))  # + bias
        b.elementwise(scored)  # tanh
    moved = 0.0 if fused_attention else scored
    b.emit(Kind.GEMM, FORWARD, (pairs, 1, hidden), 2.0 * scored, moved, pairs)
    b.emit(Kind.GEMM, DATA_GRADIENT, (pairs, hidden, 1), 2.0 * scored, pairs, moved)
    b.softmax(rows, steps)
    b.batched_matmul(b.batch_size, steps, hidden, steps)
    for position in range(1, decoder_layers):
        b.concat(2 * rows * hidden)
        layer(2 * hidden, residual=position > 1)
    b.linear(rows, hidden, vocab)
    b.cross_entropy(rows, vocab)
    b.elementwise(rows * vocab, reads=1, writes=0, backward_writes=0)  # label smoothing: row mean


def lstm_lm(
    b: GraphBuilder,
    vocab: int,
    hidden: int,
    layers: int = 2,
    embedding: int | None = None,
    tied: bool = False,
    fused: bool = True,
) -> None:
    """One sample is a stretch of ``work.tokens`` words, unrolled by truncated back-propagation."""
    width = embedding or hidden
    rows = b.batch_size * b.work.tokens
    b.input(2 * b.work.tokens)
    b.embedding(rows, width, vocab)
    b.dropout(rows * width)
    for layer in range(layers):
        b.rnn(b.work.tokens, width if layer == 0 else hidden, hidden, fused=fused)
        b.dropout(rows * hidden)
    b.linear(rows, hidden, vocab, shared=tied)
    if tied:
        b.parameters(vocab)
    b.cross_entropy(rows, vocab)


def transformer_xl(
    b: GraphBuilder,
    layers: int,
    hidden: int,
    heads: int,
    ffn: int,
    head_dim: int = 64,
    mem_len: int | None = None,
    vocab: int = 267735,
    cutoffs: Sequence[int] = (19997, 39997, 199997),
    div_val: int = 1,
    tail_shares: Sequence[float] = (0.022, 0.026, 0.003),
    attention_dropout: bool = False,
) -> None:
    """A language model over words in order of frequency.

    One sample is one segment of ``work.tokens`` targets (tgt_len) that also attends ``mem_len``
    cached states, by default as many. ``tail_shares`` is the share of the targets in each cluster
    behind the first; ``div_val`` divides the embedding width from cluster to cluster.
    """
    target, projected = b.work.tokens, div_val != 1
    memory = target if mem_len is None else mem_len
    rows = b.batch_size * target
    habits: Options = {"head_dim": head_dim, "activation": "relu"}
    block = Block.of(hidden, heads, ffn, inner_dropout=True, **habits)
    words = [high - low for low, high in pairwise((0, *cutoffs, vocab))]
    due = [ceil(rows * share) for share in (1.0 - sum(tail_shares), *tail_shares)]
    widths = [hidden // div_val**position for position in range(len(words))]
    clusters = list(zip(due, widths, words, strict=True))
    b.input(2 * target)
    if not projected:
        b.embedding(rows, hidden, sum(words))
    else:  # a narrower table a cluster with a projection
        for here, width, size in clusters:
            _pick(b, rows)
            b.embedding(here, width, size)
            b.linear(here, width, hidden, bias=False)
            b.move(here * hidden)
    b.move(rows * hidden)
    b.dropout(rows * hidden)
    b.parameters(2 * heads * head_dim, 2)
    b.dropout((target + memory) * hidden)
    with b.repeat(layers):
        _relative_attention(b, block, target, target + memory, dropout=attention_dropout)
        feed_forward(b, block, rows)
    b.dropout(rows * hidden)
    # adaptive softmax: most frequent words and cluster logits at every position, each tail where it
    # is due; word weights are tied to the embedding, and so are the projections, but for the first
    tails = clusters[1:]
    b.parameters(len(tails) * (hidden + 1) + sum(words), 3)
    if projected:
        b.linear(rows, hidden, hidden, bias=False)
    _tied_logits(b, rows, hidden, words[0] + len(tails))
    for here, width, size in tails:
        _pick(b, rows)
        b.move(here * hidden)
        if projected:
            b.linear(here, hidden, width, bias=False, shared=True)
        _tied_logits(b, here, width, size)


def _relative_attention(
    b: GraphBuilder, block: Block, target: int, keys: int, *, dropout: bool
) -> None:
    """Content scores plus position scores, the latter shifted to relative distances.

    Queries, keys and values are projected for memory and segment in one GEMM.
    """
    rows, width, heads = b.batch_size * target, block.attention_width, b.batch_size * block.heads
    scores = heads * target * keys
    b.concat(b.batch_size * keys * block.hidden)
    b.linear(b.batch_size * keys, block.hidden, 3 * width, bias=False)
    b.linear(keys, block.hidden, width, bias=False)
    for _ in ("content bias", "position bias"):
        b.move(rows * width)
    b.batched_matmul(heads, target, keys, block.head_dim)
    b.batched_matmul(heads, target, keys, block.head_dim)
    b.elementwise(scores, kernels=2, reads=2, writes=2, backward_reads=2, backward_writes=2)
    b.add(scores)
    b.move(scores)
    b.move(scores)
    b.softmax(heads * target, keys)
    if dropout:
        b.dropout(scores)
    b.batched_matmul(heads, target, block.head_dim, keys)
    b.move(rows * width)
    b.linear(rows, width, block.hidden, bias=False)
    residual(b, block, rows)
    norm(b, block, rows)


def _pick(b: GraphBuilder, rows: int) -> None:
    """The words of one cluster among all."""
    b.elementwise(rows, kernels=4, reads=4, writes=2, backward_writes=0)


def _tied_logits(b: GraphBuilder, rows: int, width: int, classes: int) -> None:
    """Logits and loss of one cluster, whose weights are those of its embedding."""
    b.concat(classes * width)
    b.linear(rows, width, classes, bias=False, shared=True)
    b.move(rows * classes)
    b.cross_entropy(rows, classes)
