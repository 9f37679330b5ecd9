"""Sequencer2D: LSTMs along rows and columns instead of attention (arXiv 2205.01972)."""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from ..registry import family
from ..workload import Workload
from .image import image_input
from .vision_blocks import feed_forward, linear_classifier


@family("sequencer2d")
def sequencer2d(
    b: GraphBuilder,
    work: Workload,
    *,
    depths: Sequence[int],
    widths: Sequence[int] = (192, 384, 384, 384),
    rnn_hidden: Sequence[int] = (48, 96, 96, 96),
    patches: Sequence[int] = (7, 2, 1, 1),
    classes: int = 1000,
) -> None:
    """Stages of bidirectional LSTMs over both axes, joined by a linear layer."""
    x = image_input(b, work)
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        side = patches[stage]
        x = b.conv(x, width, side, stride=side, padding=0, bias=True, data_gradient=stage > 0)
        b.concat(x)
        with b.repeat(depth):
            _block(b, x, rnn_hidden[stage])
        b.concat(x)
    b.layer_norm(b.batch_size * x.positions, x.channels)
    b.global_pool(x)
    linear_classifier(b, x.channels, classes)


def _block(b: GraphBuilder, x: Feature, hidden: int) -> None:
    rows, width = b.batch_size * x.positions, x.channels
    height, columns = x.size
    b.layer_norm(rows, width)
    b.concat(x)
    b.rnn(height, width, hidden, batch=b.batch_size * columns, bidirectional=True)
    b.rnn(columns, width, hidden, batch=b.batch_size * height, bidirectional=True)
    b.concat(rows * 4 * hidden)
    b.linear(rows, 4 * hidden, width)
    b.add(x)
    b.layer_norm(rows, width)
    feed_forward(b, rows, width, 3 * width)
    b.add(x)
