"""wav2vec 2.0: convolutions on raw audio, a transformer encoder, contrastive or CTC loss.

Baevski et al. arXiv 2006.11477; the Hourglass encoder (Nawrot et al. arXiv 2110.13711) runs its
middle layers at a fraction of the frame rate.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from . import Workload, family

_EXTRACTOR = ((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2))  # kernel, stride


@family("wav2vec2")
def wav2vec2(
    b: GraphBuilder,
    work: Workload,
    *,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    ffn: int = 3072,
    final_dim: int = 256,
    layer_norm_extractor: bool = False,
    hourglass: Sequence[int] = (),
    contrastive: bool = True,
    labels: int = 32,
    position_kernel: int = 128,
) -> None:
    """One sample is an utterance of ``work.tokens`` audio samples at 16 kHz.

    ``hourglass`` is (layers before, layers inside, shortening factor, layers after).
    Fine-tuning (``contrastive=False``) leaves the extractor frozen.
    """
    b.input(work.tokens)
    if contrastive:
        x = _extractor(b, work.tokens, layer_norm_extractor)
    else:
        with b.forward_only():
            x = _extractor(b, work.tokens, layer_norm_extractor)
    rows = b.batch_size * x.positions
    b.layer_norm(rows, x.channels)
    b.linear(rows, x.channels, hidden)
    b.dropout(rows * hidden)
    b.parameters(hidden)  # the embedding of masked frames
    b.elementwise(rows * hidden, reads=1, backward_reads=1)
    _positions(b, Feature(hidden, x.size), position_kernel)
    _encoder(b, work, x.positions, layers, hidden, heads, ffn, hourglass)
    if contrastive:
        _contrast(b, rows, x.channels, hidden, final_dim)
    else:
        b.linear(rows, hidden, labels)
        b.softmax(rows, labels)
        b.regression_loss(rows * labels, kernels=3)


def _extractor(b: GraphBuilder, samples: int, every_norm: bool) -> Feature:
    x = Feature(1, (samples,))
    for layer, (kernel, stride) in enumerate(_EXTRACTOR):
        x = b.conv(
            x, 512, kernel, stride=stride, padding=0, bias=every_norm, data_gradient=layer > 0
        )
        if every_norm:
            b.elementwise(2 * b.batch_size * x.elements, reads=1, backward_reads=1, kernels=2)
            b.layer_norm(b.batch_size * x.positions, x.channels)
        elif layer == 0:
            b.group_norm(x)
        b.activation(x, "gelu")
    return x


def _positions(b: GraphBuilder, x: Feature, kernel: int, groups: int = 16) -> None:
    """A wide grouped convolution with weight norm over the kernel axis."""
    weights = x.channels // groups * x.channels * kernel
    b.parameters(kernel)
    b.elementwise(weights, reads=2, backward_reads=3)
    b.conv(x, x.channels, kernel, padding=(kernel - 1) // 2, groups=groups, bias=True)
    b.activation(x, "gelu")
    b.add(x)
    b.layer_norm(b.batch_size * x.positions, x.channels)
    b.dropout(x)


def _encoder(
    b: GraphBuilder,
    work: Workload,
    length: int,
    layers: int,
    hidden: int,
    heads: int,
    ffn: int,
    hourglass: Sequence[int],
) -> None:
    if not hourglass:
        _layers(b, work, layers, length, hidden, heads, ffn)
        return
    before, inside, factor, after = hourglass
    short = -(-length // factor)
    _layers(b, work, before, length, hidden, heads, ffn)
    b.linear(b.batch_size * short, factor * hidden, hidden)
    _layers(b, work, inside, short, hidden, heads, ffn)
    b.linear(b.batch_size * short, hidden, factor * hidden)
    b.add(b.batch_size * length * hidden)
    _layers(b, work, after, length, hidden, heads, ffn)


def _layers(
    b: GraphBuilder, work: Workload, layers: int, length: int, hidden: int, heads: int, ffn: int
) -> None:
    rows = b.batch_size * length
    with b.repeat(layers):
        with b.repeat(3):
            b.linear(rows, hidden, hidden)
            b.elementwise(rows * hidden, reads=1, backward_reads=1)  # heads first
        b.attention(heads, length, length, hidden // heads, flash=work.flash_attention)
        b.linear(rows, hidden, hidden)
        b.dropout(rows * hidden)
        b.add(rows * hidden)
        b.layer_norm(rows, hidden)
        b.linear(rows, hidden, ffn)
        b.activation(rows * ffn, "gelu")
        b.linear(rows, ffn, hidden)
        b.dropout(rows * hidden)
        b.add(rows * hidden)
        b.layer_norm(rows, hidden)


def _contrast(
    b: GraphBuilder,
    rows: int,
    features: int,
    hidden: int,
    dim: int,
    entries: int = 640,
    negatives: int = 100,
    masked: float = 0.49,
) -> None:
    """Quantise the masked frames, compare the outputs with them and 100 negatives each.

    About 49 % of frames are masked at the published start probability of 0.065 and span of 10.
    """
    targets = round(rows * masked)
    b.linear(targets, features, entries)
    b.softmax(targets * 2, entries // 2)
    b.parameters(entries * dim // 2)
    b.elementwise(targets * entries, kernels=3)
    b.elementwise(targets * entries * dim // 2, reads=1, backward_reads=1)
    b.linear(targets, dim, dim)
    b.linear(targets, hidden, dim)
    pairs = float(targets * (negatives + 1))
    b.elementwise(pairs * dim, reads=1, backward_reads=1, kernels=2)  # gather the negatives
    b.elementwise(pairs * dim, reads=2, writes=1, backward_reads=3, kernels=3)  # cosine
    b.cross_entropy(targets, negatives + 1)
