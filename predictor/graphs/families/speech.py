"""Speech recognition: Jasper and QuartzNet, the RNN transducer of MLPerf, wav2vec 2.0.

Li et al. arXiv 1904.03288 (dense residual); Kriman et al. arXiv 1910.10261 (time-channel separable
convolutions, plain residual); Graves arXiv 1211.3711; Baevski et al. arXiv 2006.11477; Nawrot et
al. arXiv 2110.13711 (Hourglass).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import groupby

from ..builder import Feature, GraphBuilder
from ..operator import Kind

JASPER_MELS, MELS, SYMBOLS_PER_FRAME = 64, 80, 0.05  # the last two of the RNN transducer
_EXTRACTOR = ((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2))  # kernel, stride


def jasper(
    b: GraphBuilder,
    blocks: Sequence[Sequence[int]],
    separable: bool = False,
    dense_residual: bool = True,
    dropout: bool = True,
    labels: int = 29,
) -> None:
    """A 1-D convolutional recogniser trained with CTC.

    One sample is an utterance of ``work.tokens`` frames (10 ms each), padding included. Each of
    ``blocks`` is (filters, kernel, layers, residual, stride, dilation).
    """

    def layer(x: Feature, block: Sequence[int]) -> Feature:
        """Mask the padding, convolve, norm, ReLU, dropout."""
        filters, kernel, _, _, stride, dilation = block
        b.move(x)
        if separable and kernel > 1:
            x = b.conv(x, x.channels, kernel, stride=stride, dilation=dilation, groups=x.channels)
            b.move(x)
            x = b.conv_norm(x, filters, 1)
        else:
            x = b.conv_norm(x, filters, kernel, stride=stride, dilation=dilation)
        if dropout:
            b.dropout(x)
        return x

    def stack(x: Feature, block: Sequence[int], sources: Sequence[Feature]) -> Feature:
        """Layers of one width; 1x1 convolutions of ``sources`` are added before the last ReLU."""
        for times in (1, block[2] - 1):
            if times:
                with b.repeat(times):
                    x = layer(x, block)
        for source, group in groupby(sources, key=lambda pane: pane.channels):
            with b.repeat(len(list(group))):
                b.conv_norm(Feature(source, x.size), block[0], 1, act="")
                b.add(x)
        return x

    b.input(b.work.tokens * JASPER_MELS)
    x = Feature(JASPER_MELS, (b.work.tokens,))
    panes: list[Feature] = []
    for block, run in groupby(tuple(block) for block in blocks):
        left = len(list(run))
        while left:
            alike = left if not dense_residual and x.channels == block[0] else 1
            left -= alike
            sources = (panes if dense_residual else [x]) if block[3] else []
            with b.repeat(alike):
                x = stack(x, block, sources)
            panes.append(x)
    rows = b.batch_size * x.positions
    b.linear(rows, x.channels, labels)
    b.softmax(rows, labels)
    cells = rows * labels  # the alpha and beta recursions: one kernel each over all frames
    moved = (2 * cells, cells), (3 * cells, cells)
    b.both(Kind.LOSS, (x.positions, labels), *moved, kernels=2, backward_kernels=3)


def rnnt(
    b: GraphBuilder,
    vocab: int = 1023,
    pre_layers: int = 2,
    post_layers: int = 3,
    hidden: int = 1024,
    predictor_hidden: int = 512,
    joint_hidden: int = 512,
) -> None:
    """LSTM encoder and predictor, a joint network over all their pairs (MLPerf v1.0 reference).

    One sample is an utterance of ``work.tokens`` frames of 10 ms, of which three are stacked;
    ``vocab`` lacks the blank.
    """

    def lstm(steps: int, width: int, hidden: int, layers: int) -> None:
        for layer in range(layers):
            b.rnn(steps, width if layer == 0 else hidden, hidden)
            b.dropout(b.batch_size * steps * hidden)

    frames, classes = b.work.tokens // 3, vocab + 1
    half, symbols = -(-frames // 2), round(b.work.tokens * SYMBOLS_PER_FRAME) + 1
    b.input(b.work.tokens * MELS + symbols)
    lstm(frames, MELS * 3, hidden, pre_layers)
    b.move(b.batch_size * frames * hidden)  # stack two steps
    lstm(half, 2 * hidden, hidden, post_layers)
    b.embedding(b.batch_size * symbols, predictor_hidden, vocab)
    lstm(symbols, predictor_hidden, predictor_hidden, 2)
    b.linear(b.batch_size * half, hidden, joint_hidden)
    b.linear(b.batch_size * symbols, predictor_hidden, joint_hidden)
    # sum of every pair, ReLU and dropout in one kernel
    pairs = b.batch_size * half * symbols
    b.chain(pairs * joint_hidden, (0.1, 1.25, 1), (2, 0.1, 2))
    b.linear(pairs, joint_hidden, classes)
    # the loss keeps only log-sum-exp and recomputes the softmax in its backward
    cells = pairs * classes
    moved = (cells, 5 * pairs), (pairs * (classes + 5), cells)
    b.both(Kind.LOSS, (pairs, classes), *moved, kernels=3, backward_kernels=1)


def wav2vec2(
    b: GraphBuilder,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    ffn: int = 3072,
    final_dim: int = 256,
    layer_norm_extractor: bool = False,
    hourglass: Sequence[int] = (),
    contrastive: bool = True,
    labels: int = 32,
) -> None:
    """Convolutions on raw audio, a transformer encoder, contrastive or CTC loss.

    One sample is an utterance of ``work.tokens`` audio samples at 16 kHz. ``hourglass`` is (layers
    before, layers inside, shortening factor, layers after): the middle layers run at a fraction of
    the frame rate. Fine-tuning (``contrastive=False``) leaves the extractor frozen.
    """

    def encoder(times: int, length: int) -> None:
        rows = b.batch_size * length
        with b.repeat(times):
            with b.repeat(3):
                b.linear(rows, hidden, hidden)
                b.move(rows * hidden)  # heads first
            b.attention(heads, length, length, hidden // heads, flash=b.work.flash_attention)
            b.linear(rows, hidden, hidden)
            b.dropout(rows * hidden)
            b.add(rows * hidden)
            b.layer_norm(rows, hidden)
            b.dense(rows, hidden, ffn, "gelu")
            b.linear(rows, ffn, hidden)
            b.dropout(rows * hidden)
            b.add(rows * hidden)
            b.layer_norm(rows, hidden)

    b.input(b.work.tokens)
    with nullcontext() if contrastive else b.forward_only():
        x = _extracted(b, layer_norm=layer_norm_extractor)
    length, rows = x.positions, b.batch_size * x.positions
    b.layer_norm(rows, x.channels)
    b.linear(rows, x.channels, hidden)
    b.dropout(rows * hidden)
    b.parameters(hidden)  # the embedding of masked frames
    b.move(rows * hidden)
    # positions: a wide grouped convolution with weight norm over the kernel axis
    y, kernel, groups = x.with_channels(hidden), 128, 16
    b.parameters(kernel)
    b.elementwise(hidden // groups * hidden * kernel, reads=2, backward_reads=3)
    b.conv(y, hidden, kernel, padding=(kernel - 1) // 2, groups=groups, bias=True)
    b.activation(y, "gelu")
    b.add(y)
    b.layer_norm(rows, hidden)
    b.dropout(y)
    if hourglass:
        before, inside, factor, after = hourglass
        short = -(-length // factor)
        encoder(before, length)
        b.linear(b.batch_size * short, factor * hidden, hidden)
        encoder(inside, short)
        b.linear(b.batch_size * short, hidden, factor * hidden)
        b.add(rows * hidden)
        encoder(after, length)
    else:
        encoder(layers, length)
    if contrastive:
        _contrast(b, rows, x.channels, hidden, final_dim)
    else:
        b.linear(rows, hidden, labels)
        b.softmax(rows, labels)
        b.regression_loss(rows * labels, kernels=3)


def _extracted(b: GraphBuilder, *, layer_norm: bool) -> Feature:
    """Frames of the raw audio, by convolutions with a norm behind each or a group norm alone."""
    x = Feature(1, (b.work.tokens,))
    for position, (kernel, stride) in enumerate(_EXTRACTOR):
        first = position == 0
        x = b.conv(
            x, 512, kernel, stride=stride, padding=0, bias=layer_norm, data_gradient=not first
        )
        if layer_norm:
            moved = 2 * b.batch_size * x.elements
            b.elementwise(moved, reads=1, backward_reads=1, kernels=2)
            b.layer_norm(b.batch_size * x.positions, x.channels)
        elif first:
            b.norm(x, "group")
        b.activation(x, "gelu")
    return x


def _contrast(b: GraphBuilder, rows: int, channels: int, hidden: int, final_dim: int) -> None:
    """Quantise the masked frames, compare the outputs with them and 100 negatives each.

    About 49 % are masked at the published start probability of 0.065 and span of 10.
    """
    targets, entries, negatives = round(rows * 0.49), 640, 100
    b.linear(targets, channels, entries)
    b.softmax(targets * 2, entries // 2)
    b.parameters(entries * final_dim // 2)
    b.elementwise(targets * entries, kernels=3)
    b.move(targets * entries * final_dim // 2)
    b.linear(targets, final_dim, final_dim)
    b.linear(targets, hidden, final_dim)
    pairs = float(targets * (negatives + 1))
    b.elementwise(pairs * final_dim, reads=1, backward_reads=1, kernels=2)  # the negatives
    b.elementwise(pairs * final_dim, reads=2, writes=1, backward_reads=3, kernels=3)  # cosine
    b.cross_entropy(targets, negatives + 1)
