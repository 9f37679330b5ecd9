"""GNMT v2: LSTM encoder and decoder with normalised Bahdanau attention.

Wu et al. arXiv 1609.08144 as simplified by NVIDIA DeepLearningExamples and MLPerf v0.6: attention
is computed once from the first decoder layer and concatenated to the input of every later layer,
so that all layers run over whole sequences.
"""

from __future__ import annotations

from ..builder import GraphBuilder
from ..operator import Direction, Kind
from . import Workload, family


@family("gnmt")
def gnmt(
    b: GraphBuilder,
    work: Workload,
    *,
    vocab: int = 32320,
    hidden: int = 1024,
    encoder_layers: int = 4,
    decoder_layers: int = 4,
    fused_attention: bool = False,
) -> None:
    """One sample is a sentence pair, both sides padded to ``work.tokens`` subwords."""
    steps = work.tokens
    rows = b.batch_size * steps
    b.input(2 * steps)
    b.embedding(rows, hidden, vocab)
    _encoder(b, steps, hidden, encoder_layers)
    b.embedding(rows, hidden, vocab, shared=True)
    _layer(b, steps, hidden, hidden)
    _attention(b, steps, hidden, fused_attention)
    for layer in range(1, decoder_layers):
        b.concat(2 * rows * hidden)
        _layer(b, steps, 2 * hidden, hidden, residual=layer > 1)
    b.linear(rows, hidden, vocab)
    b.cross_entropy(rows, vocab)
    b.elementwise(rows * vocab, reads=1, writes=0, backward_writes=0)  # label smoothing: row mean


def _encoder(b: GraphBuilder, steps: int, hidden: int, layers: int) -> None:
    _layer(b, steps, hidden, hidden, bidirectional=True)
    _layer(b, steps, 2 * hidden, hidden)
    if layers > 2:
        with b.repeat(layers - 2):
            _layer(b, steps, hidden, hidden, residual=True)


def _layer(
    b: GraphBuilder,
    steps: int,
    width: int,
    hidden: int,
    *,
    bidirectional: bool = False,
    residual: bool = False,
) -> None:
    rows = b.batch_size * steps
    b.dropout(rows * width)
    b.rnn(steps, width, hidden, bidirectional=bidirectional)
    if residual:
        b.add(rows * hidden)


def _attention(b: GraphBuilder, steps: int, hidden: int, fused: bool) -> None:
    """Additive scores of all target steps against all source steps, softmax, context."""
    rows, pairs = b.batch_size * steps, b.batch_size * steps * steps
    b.linear(rows, hidden, hidden, bias=False)
    b.linear(rows, hidden, hidden, bias=False)
    b.parameters(2 * hidden + 1, 3)  # score vector, normalisation bias and scalar
    scored = float(pairs * hidden)
    if fused:  # one kernel each way keeps the sum and its tanh in registers
        b.elementwise(scored, reads=0.1, writes=0.0, backward_reads=0.2, backward_writes=0.1)
    else:
        b.elementwise(scored, reads=0.1, backward_reads=2, backward_writes=0.1)  # query + key
        b.elementwise(scored, backward_reads=1, backward_writes=0.01)  # + bias
        b.elementwise(scored)  # tanh
    flops = 2.0 * scored
    b.emit(
        Kind.GEMM,
        Direction.FORWARD,
        (pairs, 1, hidden),
        flops=flops,
        reads=0.0 if fused else scored,
        writes=pairs,
    )
    b.emit(
        Kind.GEMM,
        Direction.DATA_GRADIENT,
        (pairs, hidden, 1),
        flops=flops,
        reads=pairs,
        writes=0.0 if fused else scored,
    )
    b.softmax(rows, steps)
    b.batched_matmul(b.batch_size, steps, hidden, steps)
