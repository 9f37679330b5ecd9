"""Tacotron 2: an encoder over symbols, an autoregressive decoder over mel frames, a postnet.

Shen et al. arXiv 1712.05884. The decoder is a Python loop, one turn a frame, of LSTM cells and
location-sensitive attention: launches, not arithmetic, set its pace.
"""

from __future__ import annotations

from ..builder import Feature, GraphBuilder
from . import Workload, family

# 25 views, indexings and list operations of one turn, 60 going back: no kernel, and a third of the
# host time of an operator each.
_HOST_FORWARD = 8
_HOST_BACKWARD = 20


@family("tacotron2")
def tacotron2(
    b: GraphBuilder,
    work: Workload,
    *,
    symbols: int = 148,
    symbols_per_frame: float = 0.177,
    mels: int = 80,
    encoder: int = 512,
    attention_rnn: int = 1024,
    decoder_rnn: int = 1024,
    prenet: int = 256,
) -> None:
    """One sample is an utterance of ``work.tokens`` mel frames, padding included."""
    frames = work.tokens
    text = round(frames * symbols_per_frame)
    b.input(frames * mels + text)
    b.embedding(b.batch_size * text, encoder, symbols)
    x = Feature(encoder, (text,))
    with b.repeat(3):
        _conv_norm(b, x, encoder)
    b.rnn(text, encoder, encoder // 2, bidirectional=True)
    b.linear(b.batch_size * text, encoder, 128, bias=False)  # attention keys
    rows = b.batch_size * frames
    for width in (mels, prenet):
        b.linear(rows, width, prenet, bias=False, data_gradient=width != mels)
        b.activation(rows * prenet)
        b.dropout(rows * prenet)
    _decoder(b, frames, text, mels, encoder, attention_rnn, decoder_rnn, prenet)
    _postnet(b, Feature(mels, (frames,)))
    with b.repeat(2):
        b.regression_loss(rows * mels)
    b.regression_loss(rows)


def _conv_norm(b: GraphBuilder, x: Feature, channels: int, *, last: bool = False) -> Feature:
    x = b.conv(x, channels, 5, bias=True)
    b.batch_norm(x)
    if not last:
        b.activation(x)
    b.dropout(x)
    return x


def _postnet(b: GraphBuilder, mel: Feature, width: int = 512) -> None:
    x = _conv_norm(b, mel, width)
    with b.repeat(3):
        x = _conv_norm(b, x, width)
    b.add(_conv_norm(b, x, mel.channels, last=True))


def _decoder(
    b: GraphBuilder,
    frames: int,
    text: int,
    mels: int,
    encoder: int,
    attention_rnn: int,
    decoder_rnn: int,
    prenet: int,
) -> None:
    """All turns of the loop; weights are counted once, their gradients are summed every turn."""
    rows, joined = b.batch_size, decoder_rnn + encoder
    b.parameters(joined * (mels + 1) + mels + 1, 4)
    b.parameters(attention_rnn * 128 + 128 + 32 * 2 * 31 + 32 * 128, 4)
    for width, hidden in (
        (prenet + encoder, attention_rnn),
        (attention_rnn + encoder, decoder_rnn),
    ):
        b.parameters(4 * hidden * (width + hidden) + 8 * hidden, 4)
    with b.repeat(frames):
        _lstm_cell(b, prenet + encoder, attention_rnn)
        _location_attention(b, text, encoder, attention_rnn)
        _lstm_cell(b, attention_rnn + encoder, decoder_rnn)
        b.concat(rows * joined)
        _step_linear(b, rows, joined, mels, bias=True)
        _step_linear(b, rows, joined, 1, bias=True)
        b.elementwise(
            rows, reads=0, writes=0, kernels=_HOST_FORWARD, backward_kernels=_HOST_BACKWARD
        )


def _step_linear(b: GraphBuilder, rows: int, width: int, out: int, *, bias: bool) -> None:
    """A linear layer inside the loop: its weight gradient is added to the sum so far."""
    b.linear(rows, width, out, bias=bias, shared=True)
    b.elementwise(width * out, reads=0, writes=0, kernels=0, backward_reads=2, backward_kernels=1)


def _lstm_cell(b: GraphBuilder, width: int, hidden: int) -> None:
    """Concatenate the input, two GEMMs, one fused gate kernel, dropout."""
    rows = b.batch_size
    b.concat(rows * width)
    _step_linear(b, rows, width, 4 * hidden, bias=True)
    _step_linear(b, rows, hidden, 4 * hidden, bias=True)
    b.elementwise(
        2 * rows * hidden,
        reads=4.5,
        writes=3,
        backward_reads=4,
        backward_writes=2,
        backward_kernels=2,
    )
    b.dropout(rows * hidden)


def _location_attention(b: GraphBuilder, text: int, encoder: int, query: int) -> None:
    """Score query + location features + keys, softmax over the symbols, context."""
    rows, cells, dim, filters = b.batch_size, b.batch_size * text, 128, 32
    b.concat(2 * cells)
    b.conv(Feature(2, (text,)), filters, 31, shared=True)
    b.elementwise(cells * filters, reads=1, backward_reads=1)  # channels last
    _step_linear(b, rows, query, dim, bias=False)
    _step_linear(b, cells, filters, dim, bias=False)
    b.elementwise(cells * dim, reads=2, backward_reads=1, kernels=2, backward_kernels=3)  # sum
    b.elementwise(cells * dim)  # tanh
    _step_linear(b, cells, dim, 1, bias=False)
    b.elementwise(cells, reads=1, backward_reads=1)  # mask
    b.softmax(rows, text)
    b.batched_matmul(rows, 1, encoder, text)
    b.add(cells)  # cumulative weights
    b.elementwise(  # gradients of keys and memory, which every turn adds to
        cells * (dim + encoder), reads=0, writes=0, kernels=0, backward_reads=2, backward_kernels=2
    )
