"""WaveGlow: a flow-based vocoder, trained on short segments of audio.

Prenger et al. arXiv 1811.00002. Twelve flows of an invertible 1x1 convolution and an affine
coupling whose network is a non-causal WaveNet; two channels leave early every four flows.
"""

from __future__ import annotations

from ..builder import Feature, GraphBuilder
from ..operator import Direction, Kind
from . import Workload, family
from .hifigan import weight_norm


@family("waveglow")
def waveglow(
    b: GraphBuilder,
    work: Workload,
    *,
    flows: int = 12,
    groups: int = 8,
    early_every: int = 4,
    early_size: int = 2,
    layers: int = 8,
    channels: int = 512,
    kernel: int = 3,
    mels: int = 80,
    hop: int = 256,
) -> None:
    """One sample is a segment of ``work.tokens`` audio samples."""
    samples = work.tokens
    mel = Feature(mels, (samples // hop + 1,))
    b.input(samples + mel.elements)
    b.conv_transpose(mel, mels, 1024, stride=hop, bias=True)
    positions = samples // groups
    condition = Feature(mels * groups, (positions,))
    b.elementwise(b.batch_size * condition.elements, reads=1, backward_reads=1, kernels=2)
    width = groups
    for start in range(0, flows, early_every):
        if start:
            width -= early_size
        with b.repeat(min(early_every, flows - start)):
            _flow(b, Feature(width, (positions,)), condition, layers, channels, kernel)
    b.regression_loss(b.batch_size * samples, kernels=3)


def _flow(
    b: GraphBuilder, x: Feature, condition: Feature, layers: int, channels: int, kernel: int
) -> None:
    b.conv(x, x.channels, 1)
    for direction in (Direction.FORWARD, Direction.DATA_GRADIENT):  # log-determinant of the weight
        b.emit(Kind.LOSS, direction, (x.channels, x.channels), kernels=8)
    half = x.with_channels(x.channels // 2)
    _wavenet(b, half, condition, layers, channels, kernel)
    b.elementwise(b.batch_size * half.elements, reads=3, backward_reads=3, kernels=3)  # affine
    b.elementwise(b.batch_size * half.elements, reads=1, writes=0, backward_writes=1)  # log s
    b.concat(x)


def _wavenet(
    b: GraphBuilder, x: Feature, condition: Feature, layers: int, channels: int, kernel: int
) -> None:
    """Dilated convolutions conditioned on the mel spectrogram, gated, with skip connections."""
    out = 2 * x.channels
    weight_norm(b, x.channels * channels, channels)
    h = b.conv(x, channels, 1, bias=True)
    for last in (False, True):
        with b.repeat(1 if last else layers - 1):
            gates = 2 * channels
            weight_norm(b, kernel * channels * gates, gates)
            b.conv(h, gates, kernel, bias=True)
            weight_norm(b, condition.channels * gates, gates)
            gated = b.conv(condition, gates, 1, bias=True)
            b.elementwise(  # add, tanh x sigmoid: one fused kernel each way
                b.batch_size * h.elements,
                reads=4,
                backward_reads=5,
                backward_writes=2,
                backward_kernels=5,
            )
            skip = channels if last else gates
            weight_norm(b, channels * skip, skip)
            b.conv(gated.with_channels(channels), skip, 1, bias=True)
            b.elementwise(  # residual and skip sums over slices
                b.batch_size * h.elements * skip // channels,
                reads=2,
                backward_reads=1,
                kernels=skip / channels,
            )
    b.conv(h, out, 1, bias=True)
