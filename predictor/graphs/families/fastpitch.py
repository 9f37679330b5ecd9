"""Parallel text-to-speech on feed-forward transformers: FastPitch and FastSpeech.

Lancucki arXiv 2006.06873; Ren et al. arXiv 1905.09263; the aligner of FastPitch 1.1 is Badlani et
al. arXiv 2108.10447. A transformer over symbols, its outputs repeated by duration, another over
mel frames; the feed-forward part of a block is two 1-D convolutions.
"""

from __future__ import annotations

from ..builder import Feature, GraphBuilder
from ..operator import Direction, Kind
from . import Workload, family


@family("fastpitch")
def fastpitch(
    b: GraphBuilder,
    work: Workload,
    *,
    layers: int = 6,
    hidden: int = 384,
    heads: int = 1,
    head_dim: int = 64,
    ffn: int = 1536,
    kernel: int = 3,
    mels: int = 80,
    symbols: int = 148,
    symbols_per_frame: float = 0.177,
    predictors: int = 3,
    conditions: int = 2,
    aligner: bool = True,
    output_bias: bool = False,
) -> None:
    """One sample is an utterance of ``work.tokens`` mel frames, padding included.

    ``predictors`` counts duration, pitch and energy; ``conditions`` those embedded again.
    """
    frames = work.tokens
    text = round(frames * symbols_per_frame)
    b.input(frames * mels + text)
    b.embedding(b.batch_size * text, hidden, symbols)
    _stack(b, text, layers, hidden, heads, head_dim, ffn, kernel, output_bias)
    x = Feature(hidden, (text,))
    with b.repeat(predictors):
        _predictor(b, x)
    if conditions:
        with b.repeat(conditions):
            b.conv(Feature(1, (text,)), hidden, 3, bias=True, data_gradient=False)
            b.add(x)
    if aligner:
        _align(b, frames, text, hidden, symbols, mels)
    b.batched_matmul(b.batch_size, frames, hidden, text)  # repeat symbols by duration
    _stack(b, frames, layers, hidden, heads, head_dim, ffn, kernel, output_bias)
    b.linear(b.batch_size * frames, hidden, mels)
    b.regression_loss(b.batch_size * frames * mels)
    with b.repeat(predictors):
        b.regression_loss(b.batch_size * text)


def _stack(
    b: GraphBuilder,
    length: int,
    layers: int,
    hidden: int,
    heads: int,
    head_dim: int,
    ffn: int,
    kernel: int,
    output_bias: bool,
) -> None:
    rows = b.batch_size * length
    inner = heads * head_dim
    x = Feature(hidden, (length,))
    b.add(x)  # positions
    with b.repeat(layers):
        b.linear(rows, hidden, 3 * inner)
        b.elementwise(3 * rows * inner, backward_reads=1)  # heads first
        b.attention(heads, length, length, head_dim)
        b.elementwise(b.batch_size * heads * length * length, reads=1, backward_reads=1)  # mask
        b.linear(rows, inner, hidden, bias=output_bias)
        b.dropout(x)
        b.add(x)
        b.layer_norm(rows, hidden)
        b.elementwise(2 * rows * hidden, reads=1, backward_reads=1)  # to channels first and back
        y = b.conv(x, ffn, kernel, bias=True)
        b.activation(y)
        b.conv(y, hidden, kernel, bias=True)
        b.dropout(x)
        b.add(x)
        b.layer_norm(rows, hidden)
        b.elementwise(2 * rows * hidden, reads=1, backward_reads=1, kernels=2)  # mask


def _predictor(b: GraphBuilder, x: Feature, filters: int = 256) -> None:
    """Two convolutions with ReLU, layer norm and dropout, then one value a symbol."""
    rows = b.batch_size * x.positions
    for _ in range(2):
        x = b.conv(x, filters, 3, bias=True)
        b.activation(x)
        b.elementwise(2 * rows * filters, reads=1, backward_reads=1)
        b.layer_norm(rows, filters)
        b.dropout(x)
    b.linear(rows, filters, 1)


def _align(
    b: GraphBuilder, frames: int, text: int, hidden: int, symbols: int, mels: int, width: int = 80
) -> None:
    """Squared distances of all frames to all symbols; CTC is run for each utterance alone."""
    b.embedding(b.batch_size * text, hidden, symbols, shared=True)
    keys = b.conv(Feature(hidden, (text,)), 2 * hidden, 3, bias=True)
    b.activation(keys)
    b.conv(keys, width, 1, bias=True)
    queries = b.conv(Feature(mels, (frames,)), 2 * mels, 3, bias=True, data_gradient=False)
    b.activation(queries)
    queries = b.conv(queries, mels, 1, bias=True)
    b.activation(queries)
    b.conv(queries, width, 1, bias=True)
    b.parameters(width + 1, 2)  # a projection that the loss never reaches
    pairs = b.batch_size * frames * text
    b.elementwise(pairs * width, reads=0.1, backward_reads=2, backward_writes=0.1)  # difference
    b.elementwise(pairs * width)  # square
    b.elementwise(pairs, reads=width, backward_reads=1, backward_writes=width)  # sum
    for _ in range(2):
        b.softmax(b.batch_size * frames, text)
        b.elementwise(pairs, kernels=3)  # prior, copy, mask
    cells = b.batch_size * frames * text
    b.emit(
        Kind.LOSS,
        Direction.FORWARD,
        (b.batch_size * frames, text),
        reads=4 * cells,
        writes=3 * cells,
        kernels=12 * b.batch_size,
    )
    b.emit(
        Kind.LOSS,
        Direction.DATA_GRADIENT,
        (b.batch_size * frames, text),
        reads=4 * cells,
        writes=3 * cells,
        kernels=8 * b.batch_size,
    )
