"""1-D convolutional speech recognisers trained with CTC: Jasper and QuartzNet.

Li et al. arXiv 1904.03288 (Jasper, dense residual); Kriman et al. arXiv 1910.10261 (QuartzNet,
time-channel separable convolutions, plain residual).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ..builder import Feature, GraphBuilder
from ..operator import Direction, Kind
from . import Workload, family


@family("jasper")
def jasper(
    b: GraphBuilder,
    work: Workload,
    *,
    blocks: Sequence[Sequence[int]],
    separable: bool = False,
    dense_residual: bool = True,
    dropout: bool = True,
    mels: int = 64,
    labels: int = 29,
) -> None:
    """One sample is an utterance of ``work.tokens`` frames (10 ms each), padding included.

    Each of ``blocks`` is (filters, kernel, layers, residual, stride, dilation).
    """
    b.input(work.tokens * mels)
    x = Feature(mels, (work.tokens,))
    panes: list[Feature] = []
    for block, run in groupby(tuple(block) for block in blocks):
        left = len(list(run))
        while left:
            alike = left if not dense_residual and x.channels == block[0] else 1
            left -= alike
            sources = (panes if dense_residual else [x]) if block[3] else []
            with b.repeat(alike):
                x = _block(b, x, block, sources, separable, dropout)
            panes.append(x)
    b.linear(b.batch_size * x.positions, x.channels, labels)
    _ctc(b, x.positions, labels)


def _block(
    b: GraphBuilder,
    x: Feature,
    block: Sequence[int],
    sources: Sequence[Feature],
    separable: bool,
    dropout: bool,
) -> Feature:
    """Layers of one width; 1x1 convolutions of ``sources`` are added before the last ReLU."""
    filters, kernel, layers, _, stride, dilation = block
    for times in (1, layers - 1):
        if times:
            with b.repeat(times):
                x = _layer(
                    b, x, filters, kernel, stride, dilation, separable and kernel > 1, dropout
                )
    for source, group in groupby(sources, key=lambda pane: pane.channels):
        with b.repeat(len(list(group))):
            b.batch_norm(b.conv(Feature(source, x.size), filters, 1))
            b.add(x)
    return x


def _layer(
    b: GraphBuilder,
    x: Feature,
    filters: int,
    kernel: int,
    stride: int,
    dilation: int,
    separable: bool,
    dropout: bool,
) -> Feature:
    """Mask the padding, convolve, norm, ReLU, dropout."""
    b.elementwise(b.batch_size * x.elements, reads=1, backward_reads=1)
    if separable:
        x = b.conv(x, x.channels, kernel, stride=stride, dilation=dilation, groups=x.channels)
        b.elementwise(b.batch_size * x.elements, reads=1, backward_reads=1)
        x = b.conv(x, filters, 1)
    else:
        x = b.conv(x, filters, kernel, stride=stride, dilation=dilation)
    b.batch_norm(x)
    b.activation(x)
    if dropout:
        b.dropout(x)
    return x


def _ctc(b: GraphBuilder, frames: int, labels: int) -> None:
    """Log-softmax, then the alpha and beta recursions, one kernel each over all frames."""
    b.softmax(b.batch_size * frames, labels)
    cells = b.batch_size * frames * labels
    b.emit(Kind.LOSS, Direction.FORWARD, (frames, labels), reads=2 * cells, writes=cells, kernels=2)
    b.emit(
        Kind.LOSS,
        Direction.DATA_GRADIENT,
        (frames, labels),
        reads=3 * cells,
        writes=cells,
        kernels=3,
    )
