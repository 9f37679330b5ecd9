"""Swin transformer v2 (Liu et al., arXiv 2111.09883), and timm's variant of it (``cr``).

Cosine attention, norms behind the branches, position bias from a small network on log distances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..builder import Feature, GraphBuilder
from . import Workload, family
from .vision_blocks import feed_forward, linear_classifier, patches, scores, unit_length


@dataclass(frozen=True, slots=True)
class _Style:
    """``pairwise``: the bias network runs on every pair of a window, not on every distance."""

    pairwise: bool
    bias_hidden: int


@family("swin_v2")
def swin_v2(
    b: GraphBuilder,
    work: Workload,
    *,
    depths: Sequence[int],
    heads: Sequence[int],
    hidden: int,
    window: int = 8,
    classes: int = 1000,
) -> None:
    """Windows of ``window`` positions, every second block shifted."""
    style = _Style(pairwise=False, bias_hidden=512)
    x = patches(b, work, hidden, 4)
    b.layer_norm(b.batch_size * x.positions, hidden)
    for stage, depth in enumerate(depths):
        if stage:
            x = _merge(b, x, norm_first=False)
        _stage(b, work, x, depth, heads[stage], window, style)
    b.layer_norm(b.batch_size * x.positions, x.channels)
    b.global_pool(x)
    linear_classifier(b, x.channels, classes)


@family("swin_v2_cr")
def swin_v2_cr(
    b: GraphBuilder,
    work: Workload,
    *,
    depths: Sequence[int],
    heads: Sequence[int],
    hidden: int,
    stage_norm: bool = False,
    norm_period: int = 0,
    classes: int = 1000,
) -> None:
    """Windows of a 32nd of the image; the trunk is normed at the end of the last (or each) stage.

    ``norm_period``: also after so many blocks of a stage, where its depth allows.
    """
    style = _Style(pairwise=True, bias_hidden=384)
    x = patches(b, work, hidden, 4)
    b.layer_norm(b.batch_size * x.positions, hidden)
    for stage, depth in enumerate(depths):
        if stage:
            x = _merge(b, x, norm_first=True)
        _stage(b, work, x, depth, heads[stage], work.image[0] // 32, style)
        ends = stage_norm or stage == len(depths) - 1
        for _ in range((depth // norm_period if norm_period else 0) + ends):
            b.layer_norm(b.batch_size * x.positions, x.channels)
    b.global_pool(x)
    linear_classifier(b, x.channels, classes)


def _merge(b: GraphBuilder, x: Feature, *, norm_first: bool) -> Feature:
    """2x2 neighbours to one of twice the channels."""
    merged = Feature(4 * x.channels, tuple((n + 1) // 2 for n in x.size))
    rows, out = b.batch_size * merged.positions, 2 * x.channels
    b.concat(merged)
    if norm_first:
        b.layer_norm(rows, merged.channels)
    b.linear(rows, merged.channels, out, bias=False)
    if not norm_first:
        b.layer_norm(rows, out)
    return merged.with_channels(out)


def _stage(
    b: GraphBuilder, work: Workload, x: Feature, depth: int, heads: int, window: int, style: _Style
) -> None:
    side = min(window, *x.size)
    shifted = depth // 2 if side < min(x.size) else 0
    for times, shift in ((depth - shifted, False), (shifted, True)):
        if times:
            with b.repeat(times):
                _block(b, work, x, heads, side, shift, style)


def _block(
    b: GraphBuilder, work: Workload, x: Feature, heads: int, side: int, shift: bool, style: _Style
) -> None:
    width, rows = x.channels, b.batch_size * x.positions
    windows = b.batch_size * (-(-x.size[0] // side)) * (-(-x.size[1] // side))
    copied = windows * side**2 * width
    for _ in range(2 if shift else 1):
        b.concat(copied)
    _cosine_attention(b, work, windows, side, width, heads, shift, style)
    for _ in range(2 if shift else 1):
        b.concat(copied)
    b.layer_norm(rows, width)
    b.add(rows * width)
    feed_forward(b, rows, width, 4 * width)
    b.layer_norm(rows, width)
    b.add(rows * width)


def _cosine_attention(
    b: GraphBuilder,
    work: Workload,
    windows: int,
    side: int,
    width: int,
    heads: int,
    shift: bool,
    style: _Style,
) -> None:
    tokens = side**2
    rows = windows * tokens
    b.parameters(heads)
    if style.pairwise:
        b.linear(rows, width, 3 * width)
    else:
        b.linear(rows, width, 3 * width, bias=False)
        b.parameters(2 * width, 2)
        b.elementwise(rows * 3 * width, reads=0, writes=0, kernels=1, backward_reads=1 / 3)
    for _ in range(2):  # queries and keys to unit length
        unit_length(b, rows * heads, width // heads)
    _position_bias(b, side, heads, style)
    b.elementwise(windows * heads * tokens**2, backward_reads=3, backward_kernels=2)
    scores(b, work, windows, heads, tokens, tokens, width // heads, terms=2 if shift else 1)
    b.linear(rows, width, width)


def _position_bias(b: GraphBuilder, side: int, heads: int, style: _Style) -> None:
    """Two layers from a distance in two axes to a bias per head, gathered for every pair."""
    pairs = side**4
    distances = pairs if style.pairwise else (2 * side - 1) ** 2
    b.linear(distances, 2, style.bias_hidden, data_gradient=False)
    b.activation(distances * style.bias_hidden)
    if style.pairwise:
        b.dropout(distances * style.bias_hidden)
    b.linear(distances, style.bias_hidden, heads, bias=style.pairwise)
    b.elementwise(pairs * heads, kernels=1 if style.pairwise else 4)
