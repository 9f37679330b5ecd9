"""HiFi-GAN: a vocoder and its two groups of discriminators, all trained in every step.

Kong et al. arXiv 2010.05646. A step runs the generator once, the discriminators forward and
backward on real and generated audio for their own loss, then again for the generator's.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

from ..builder import Feature, GraphBuilder
from . import Workload, family

_RUNS = 4  # real and generated audio, for the discriminators' loss and for the generator's


@family("hifigan")
def hifigan(
    b: GraphBuilder,
    work: Workload,
    *,
    channels: int = 512,
    rates: Sequence[int] = (8, 8, 2, 2),
    kernels: Sequence[int] = (16, 16, 4, 4),
    resblock_kernels: Sequence[int] = (11, 7, 3),
    dilations: int = 3,
    periods: Sequence[int] = (2, 3, 5, 7, 11),
    scales: int = 3,
    mels: int = 80,
    discriminators: bool = True,
) -> None:
    """One sample is a segment of ``work.tokens`` audio samples."""
    samples = work.tokens
    frames = samples // prod(rates)
    b.input(samples + 2 * frames * mels)
    _generator(b, Feature(mels, (frames,)), channels, rates, kernels, resblock_kernels, dilations)
    b.regression_loss(b.batch_size * frames * mels, kernels=8)  # mel spectrogram of the output
    if not discriminators:
        return
    for period in periods:
        _period_discriminator(b, samples, period)
    for scale in range(scales):
        _scale_discriminator(b, samples >> scale, weight_normed=scale > 0)


def weight_norm(b: GraphBuilder, weights: int, channels: int) -> None:
    """Weights as direction times length: a kernel over the weights each way, and the lengths."""
    b.parameters(channels)
    b.elementwise(weights, reads=2, backward_reads=3)


def _normed_conv(b: GraphBuilder, x: Feature, channels: int, kernel: int) -> Feature:
    """Leaky ReLU, then a convolution with weight norm."""
    b.activation(x)
    weight_norm(b, x.channels * channels * kernel, channels)
    return b.conv(x, channels, kernel, bias=True)


def _generator(
    b: GraphBuilder,
    x: Feature,
    channels: int,
    rates: Sequence[int],
    kernels: Sequence[int],
    resblock_kernels: Sequence[int],
    dilations: int,
) -> None:
    weight_norm(b, x.channels * channels * 7, channels)
    x = b.conv(x, channels, 7, bias=True, data_gradient=False)
    for stage, (rate, kernel) in enumerate(zip(rates, kernels, strict=True)):
        b.activation(x)
        out = channels >> (stage + 1)
        weight_norm(b, x.channels * out * kernel, x.channels)
        x = b.conv_transpose(x, out, kernel, stride=rate, padding=(kernel - rate) // 2, bias=True)
        for size in resblock_kernels:
            with b.repeat(2 * dilations):  # dilated and plain by turns: the same work
                _normed_conv(b, x, out, size)
        with b.repeat(len(resblock_kernels) * (dilations + 1)):
            b.add(x)
        b.elementwise(b.batch_size * x.elements, backward_reads=1)  # mean of the blocks
    b.activation(_normed_conv(b, x, 1, 7))


def _discriminate(
    b: GraphBuilder,
    x: Feature,
    layers: Sequence[tuple[int, int, int, int]],
    post_kernel: int,
    weight_normed: bool,
) -> None:
    """``layers`` of (channels, kernel, stride, groups) and a last one to a single channel."""
    flat = len(x.size) == 1
    weights = 0
    for channels, kernel, stride, groups in [*layers, (1, post_kernel, 1, 1)]:
        weights += x.channels // groups * channels * kernel
        b.parameters(channels * (2 if weight_normed else 1), 2)
        with b.repeat(_RUNS):
            x = b.conv(
                x,
                channels,
                kernel if flat else (kernel, 1),
                stride=stride if flat else (stride, 1),
                groups=groups,
                shared=True,
            )
            b.elementwise(  # bias, leaky ReLU, and in half of the runs feature matching
                b.batch_size * x.elements,
                reads=2.5,
                writes=2,
                backward_reads=3,
                backward_writes=1.5,
                kernels=3.5,
            )
    b.parameters(weights, len(layers) + 1)
    with b.repeat(_RUNS):  # spectral norm takes a power iteration of small kernels
        each = (len(layers) + 1) * (1 if weight_normed else 8)
        b.elementwise(weights, reads=2, backward_reads=3, kernels=each)
    with b.repeat(_RUNS // 2):
        b.regression_loss(b.batch_size * x.elements)


def _period_discriminator(b: GraphBuilder, samples: int, period: int) -> None:
    x = Feature(1, (ceil(samples / period), period))
    layers = [(32, 5, 3, 1), (128, 5, 3, 1), (512, 5, 3, 1), (1024, 5, 3, 1), (1024, 5, 1, 1)]
    _discriminate(b, x, layers, 3, True)


def _scale_discriminator(b: GraphBuilder, samples: int, *, weight_normed: bool) -> None:
    layers = [
        (128, 15, 1, 1),
        (128, 41, 2, 4),
        (256, 41, 2, 16),
        (512, 41, 4, 16),
        (1024, 41, 4, 16),
        (1024, 41, 1, 16),
        (1024, 5, 1, 1),
    ]
    _discriminate(b, Feature(1, (samples,)), layers, 3, weight_normed)
