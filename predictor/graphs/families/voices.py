"""Text to speech: FastPitch and FastSpeech, Tacotron 2, and the vocoders WaveGlow and HiFi-GAN.

Lancucki arXiv 2006.06873; Ren et al. arXiv 1905.09263; Badlani et al. arXiv 2108.10447 (the aligner
of FastPitch 1.1); Shen et al. arXiv 1712.05884; Prenger et al. arXiv 1811.00002; Kong et al. arXiv
2010.05646.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

from ..builder import BIASED, Feature, GraphBuilder
from ..operator import Kind

MELS = 80
SYMBOLS = 148
SYMBOLS_PER_FRAME = 0.177
# Of Tacotron 2's loop 25 views, indexings and list operations of one turn, 60 going back: no
# kernel, and a third of the host time of an operator each.
_HOST_FORWARD, _HOST_BACKWARD = 8, 20
# HiFi-GAN's discriminators see real and generated audio, for their loss and for the generator's.
_RUNS = 4


def fastpitch(
    b: GraphBuilder,
    layers: int = 6,
    hidden: int = 384,
    heads: int = 1,
    head_dim: int = 64,
    ffn: int = 1536,
    predictors: int = 3,
    conditions: int = 2,
    aligner: bool = True,
    output_bias: bool = False,
) -> None:
    """One sample is an utterance of ``work.tokens`` mel frames, padding included.

    A transformer over symbols, its outputs repeated by duration, another over mel frames; the
    feed-forward part of a block is two 1-D convolutions. ``predictors`` counts duration, pitch and
    energy; ``conditions`` those embedded again.
    """

    def stack(x: Feature) -> None:
        length, rows, inner = x.positions, b.batch_size * x.positions, heads * head_dim
        b.add(x)  # positions
        with b.repeat(layers):
            b.linear(rows, hidden, 3 * inner)
            b.move(3 * rows * inner)  # heads first
            b.attention(heads, length, length, head_dim)
            b.move(b.batch_size * heads * length * length)  # mask
            b.linear(rows, inner, hidden, bias=output_bias)
            b.dropout(x)
            b.add(x)
            b.layer_norm(rows, hidden)
            b.move(2 * rows * hidden)  # to channels first and back
            b.conv(b.conv_norm(x, ffn, 3, **BIASED), hidden, 3, bias=True)
            b.dropout(x)
            b.add(x)
            b.layer_norm(rows, hidden)
            b.elementwise(2 * rows * hidden, reads=1, backward_reads=1, kernels=2)  # mask

    def align() -> None:
        """Squared distances of all frames to all symbols; CTC is run for each utterance alone."""
        pairs, width, each = b.batch_size * frames * text, 80, b.batch_size
        b.embedding(each * text, hidden, SYMBOLS, shared=True)
        keys = b.conv_norm(Feature(hidden, (text,)), 2 * hidden, 3, **BIASED)
        b.conv(keys, width, 1, bias=True)
        queries = b.conv_norm(Feature(MELS, (frames,)), 2 * MELS, 3, data_gradient=False, **BIASED)
        queries = b.conv_norm(queries, MELS, 1, **BIASED)
        b.conv(queries, width, 1, bias=True)
        b.parameters(width + 1, 2)  # a projection that the loss never reaches
        b.chain(pairs * width, (0.1, 1, 1), (2, 0.1, 1))  # difference
        b.elementwise(pairs * width)  # square
        b.elementwise(pairs, reads=width, backward_reads=1, backward_writes=width)  # sum
        for _ in range(2):
            b.softmax(each * frames, text)
            b.elementwise(pairs, kernels=3)  # prior, copy, mask
        dims, moved = (each * frames, text), (4 * pairs, 3 * pairs)
        b.both(Kind.LOSS, dims, moved, moved, kernels=12 * each, backward_kernels=8 * each)

    frames = b.work.tokens
    text = round(frames * SYMBOLS_PER_FRAME)
    x = Feature(hidden, (text,))
    b.input(frames * MELS + text)
    b.embedding(b.batch_size * text, hidden, SYMBOLS)
    stack(x)
    with b.repeat(predictors):  # convolutions with ReLU, norm and dropout, one value a symbol
        y, filters, rows = x, 256, b.batch_size * text
        for _ in range(2):
            y = b.conv_norm(y, filters, 3, **BIASED)
            b.move(2 * rows * filters)
            b.layer_norm(rows, filters)
            b.dropout(y)
        b.linear(rows, filters, 1)
    with b.repeat(conditions):
        b.conv(Feature(1, (text,)), hidden, 3, bias=True, data_gradient=False)
        b.add(x)
    if aligner:
        align()
    b.batched_matmul(b.batch_size, frames, hidden, text)  # repeat symbols by duration
    stack(Feature(hidden, (frames,)))
    b.linear(b.batch_size * frames, hidden, MELS)
    b.regression_loss(b.batch_size * frames * MELS)
    with b.repeat(predictors):
        b.regression_loss(b.batch_size * text)


def tacotron2(
    b: GraphBuilder,
    symbols: int = SYMBOLS,
    encoder: int = 512,
    attention_rnn: int = 1024,
    decoder_rnn: int = 1024,
    prenet: int = 256,
) -> None:
    """One sample is an utterance of ``work.tokens`` mel frames, padding included.

    The decoder is a Python loop, one turn a frame, of LSTM cells and location-sensitive attention:
    launches, not arithmetic, set its pace.
    """
    frames, rows = b.work.tokens, b.batch_size
    text = round(frames * SYMBOLS_PER_FRAME)
    # weights are counted once, their gradients are summed every turn
    cells = ((prenet + encoder, attention_rnn), (attention_rnn + encoder, decoder_rnn))
    joined, dim, filters = decoder_rnn + encoder, 128, 32

    def conv_norm(x: Feature, channels: int, act: str = "relu") -> Feature:
        x = b.conv_norm(x, channels, 5, act=act, bias=True)
        b.dropout(x)
        return x

    def linear(rows: int, width: int, out: int, *, bias: bool = True) -> None:
        """A linear layer inside the loop: its weight gradient is added to the sum so far."""
        b.linear(rows, width, out, bias=bias, shared=True)
        b.chain(width * out, (0, 0, 0), (2, 1, 1))

    def cell(width: int, hidden: int) -> None:
        """Concatenate the input, two GEMMs, one fused gate kernel, dropout."""
        b.concat(rows * width)
        linear(rows, width, 4 * hidden)
        linear(rows, hidden, 4 * hidden)
        b.chain(2 * rows * hidden, (4.5, 3, 1), (4, 2, 2))
        b.dropout(rows * hidden)

    def attend() -> None:
        """Score query + location features + keys, softmax over the symbols, context."""
        places = rows * text
        b.concat(2 * places)
        b.conv(Feature(2, (text,)), filters, 31, shared=True)
        b.move(places * filters)  # channels last
        linear(rows, attention_rnn, dim, bias=False)
        linear(places, filters, dim, bias=False)
        b.chain(places * dim, (2, 1, 2), (1, 1, 3))  # sum
        b.elementwise(places * dim)  # tanh
        linear(places, dim, 1, bias=False)
        b.move(places)  # mask
        b.softmax(rows, text)
        b.batched_matmul(rows, 1, encoder, text)
        b.add(places)  # cumulative weights
        # gradients of keys and memory, which every turn adds to
        b.chain(places * (dim + encoder), (0, 0, 0), (2, 1, 2))

    b.input(frames * MELS + text)
    b.embedding(rows * text, encoder, symbols)
    with b.repeat(3):
        conv_norm(Feature(encoder, (text,)), encoder)
    b.rnn(text, encoder, encoder // 2, bidirectional=True)
    b.linear(rows * text, encoder, dim, bias=False)  # attention keys
    for width in (MELS, prenet):
        b.linear(rows * frames, width, prenet, bias=False, data_gradient=width != MELS)
        b.activation(rows * frames * prenet)
        b.dropout(rows * frames * prenet)
    b.parameters(joined * (MELS + 1) + MELS + 1, 4)
    b.parameters(attention_rnn * dim + dim + filters * 2 * 31 + filters * dim, 4)
    for width, hidden in cells:
        b.parameters(4 * hidden * (width + hidden) + 8 * hidden, 4)
    with b.repeat(frames):
        cell(*cells[0])
        attend()
        cell(*cells[1])
        b.concat(rows * joined)
        linear(rows, joined, MELS)
        linear(rows, joined, 1)
        b.chain(rows, (0, 0, _HOST_FORWARD), (1, 1, _HOST_BACKWARD))
    mel = Feature(MELS, (frames,))
    x = conv_norm(mel, 512)
    with b.repeat(3):
        x = conv_norm(x, 512)
    b.add(conv_norm(x, MELS, act=""))
    with b.repeat(2):
        b.regression_loss(mel)
    b.regression_loss(rows * frames)


def waveglow(
    b: GraphBuilder, flows: int = 12, groups: int = 8, layers: int = 8, channels: int = 512
) -> None:
    """One sample is a segment of ``work.tokens`` audio samples.

    Flows of an invertible 1x1 convolution and an affine coupling whose network is a non-causal
    WaveNet; two channels leave early every four flows.
    """
    samples, gates = b.work.tokens, 2 * channels
    mel = Feature(MELS, (samples // 256 + 1,))
    condition = Feature(MELS * groups, (samples // groups,))

    def wavenet(x: Feature) -> None:
        """Dilated convolutions conditioned on the mel spectrogram, gated, with skip connections."""
        h = _normed_conv(b, x, channels, 1)
        for skip, times in ((gates, layers - 1), (channels, 1)):
            with b.repeat(times):
                _normed_conv(b, h, gates, 3)
                _normed_conv(b, condition, gates, 1)
                b.chain(h, (4, 1, 1), (5, 2, 5))  # add, tanh x sigmoid: one fused kernel each way
                _normed_conv(b, h, skip, 1)
                # residual and skip sums over slices
                sums = b.batch_size * h.elements * skip // channels
                b.elementwise(sums, reads=2, backward_reads=1, kernels=skip / channels)
        b.conv(h, 2 * x.channels, 1, bias=True)

    b.input(samples + mel.elements)
    b.conv_transpose(mel, MELS, 1024, stride=256, bias=True)
    b.elementwise(condition, reads=1, backward_reads=1, kernels=2)
    for start in range(0, flows, 4):
        x = condition.with_channels(groups - start // 2)
        half = x.with_channels(x.channels // 2)
        with b.repeat(min(4, flows - start)):
            b.conv(x, x.channels, 1)
            # log-determinant of the weight
            b.both(Kind.LOSS, (x.channels, x.channels), (0.0, 0.0), (0.0, 0.0), kernels=8)
            wavenet(half)
            b.elementwise(half, reads=3, backward_reads=3, kernels=3)  # affine
            b.elementwise(half, reads=1, writes=0, backward_writes=1)  # log s
            b.concat(x)
    b.regression_loss(b.batch_size * samples, kernels=3)


def _weight_norm(b: GraphBuilder, weights: int, channels: int) -> None:
    """Weights as direction times length: a kernel over the weights each way, and the lengths."""
    b.parameters(channels)
    b.elementwise(weights, reads=2, backward_reads=3)


def _normed_conv(b: GraphBuilder, x: Feature, channels: int, kernel: int, **conv: Any) -> Feature:
    """A convolution with bias and weight norm."""
    _weight_norm(b, x.channels * channels * kernel, channels)
    return b.conv(x, channels, kernel, bias=True, **conv)


def hifigan(b: GraphBuilder, channels: int = 512, discriminators: bool = True) -> None:
    """One sample is a segment of ``work.tokens`` audio samples.

    A step runs the generator once, the discriminators forward and backward on real and generated
    audio for their own loss, then again for the generator's.
    """
    rates, kernels, dilations = (8, 8, 2, 2), (16, 16, 4, 4), 3
    samples = b.work.tokens
    x = mel = Feature(MELS, (samples // prod(rates),))

    def discriminate(x: Feature, layers: Sequence[Sequence[int]], weight_normed: bool) -> None:
        """``layers`` of (channels, kernel, stride, groups) and a last one to a single channel."""
        weights, last = 0, (1, 3, 1, 1)
        for width, kernel, stride, groups in (*layers, last):
            weights += x.channels // groups * width * kernel
            b.parameters(width * (2 if weight_normed else 1), 2)
            sides = (kernel, stride) if len(x.size) == 1 else ((kernel, 1), (stride, 1))
            with b.repeat(_RUNS):
                x = b.conv(x, width, sides[0], stride=sides[1], groups=groups, shared=True)
                # bias, leaky ReLU, and in half of the runs feature matching
                b.chain(x, (2.5, 2, 3.5), (3, 1.5, 3.5))
        b.parameters(weights, len(layers) + 1)
        with b.repeat(_RUNS):  # spectral norm takes a power iteration of small kernels
            each = (len(layers) + 1) * (1 if weight_normed else 8)
            b.elementwise(weights, reads=2, backward_reads=3, kernels=each)
        with b.repeat(_RUNS // 2):
            b.regression_loss(x)

    b.input(samples + 2 * x.elements)
    x = _normed_conv(b, x, channels, 7, data_gradient=False)
    for stage, (rate, kernel) in enumerate(zip(rates, kernels, strict=True)):
        b.activation(x)
        out = channels >> (stage + 1)
        _weight_norm(b, x.channels * out * kernel, x.channels)
        x = b.conv_transpose(x, out, kernel, stride=rate, padding=(kernel - rate) // 2, bias=True)
        sizes = (11, 7, 3)
        for size in sizes:
            with b.repeat(2 * dilations):  # dilated and plain by turns: the same work
                b.activation(x)
                _normed_conv(b, x, out, size)
        with b.repeat(len(sizes) * (dilations + 1)):
            b.add(x)
        b.move(x)  # mean of the blocks
    b.activation(x)
    b.activation(_normed_conv(b, x, 1, 7))
    b.regression_loss(mel, kernels=8)  # mel spectrogram of the output
    if not discriminators:
        return
    for period in (2, 3, 5, 7, 11):
        layers = [(32, 5, 3, 1), (128, 5, 3, 1), (512, 5, 3, 1), (1024, 5, 3, 1), (1024, 5, 1, 1)]
        discriminate(Feature(1, (ceil(samples / period), period)), layers, True)
    for scale in range(3):
        layers = [(128, 15, 1, 1), (128, 41, 2, 4), (256, 41, 2, 16), (512, 41, 4, 16)]
        layers += [(1024, 41, 4, 16), (1024, 41, 1, 16), (1024, 5, 1, 1)]
        discriminate(Feature(1, (samples >> scale,)), layers, scale > 0)
