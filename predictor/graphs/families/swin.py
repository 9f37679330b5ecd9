"""Swin transformer (Liu et al., arXiv 2103.14030)."""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from ..registry import family
from ..workload import Workload
from .image import image_input


@family("swin")
def swin(
    b: GraphBuilder,
    work: Workload,
    *,
    depths: Sequence[int],
    heads: Sequence[int],
    hidden: int,
    window: int | Sequence[int] = 7,
    patch: int = 4,
    classes: int = 1000,
) -> None:
    """Attention inside windows, every second block shifted; patch merging between stages."""
    x = image_input(b, work)
    x = b.conv(x, hidden, patch, stride=patch, padding=0, bias=True, data_gradient=False)
    b.concat(x)
    b.layer_norm(b.batch_size * x.positions, hidden)
    windows = [window] * len(depths) if isinstance(window, int) else window
    for stage, (depth, stage_heads, side) in enumerate(zip(depths, heads, windows, strict=True)):
        if stage:
            x = _merge(b, x)
        _stage(b, work, x, depth, stage_heads, side)
    b.layer_norm(b.batch_size * x.positions, x.channels)
    b.global_pool(x)
    b.linear(b.batch_size, x.channels, classes)
    b.cross_entropy(b.batch_size, classes)


def _stage(
    b: GraphBuilder, work: Workload, x: Feature, depth: int, heads: int, window: int
) -> None:
    """Half of the blocks shift their windows, except where one window covers the map."""
    side = min(window, *x.size)
    shifted = depth // 2 if side < min(x.size) else 0
    for times, shift in ((depth - shifted, False), (shifted, True)):
        if times:
            with b.repeat(times):
                _block(b, work, x, heads, side, shift)


def _merge(b: GraphBuilder, x: Feature) -> Feature:
    """Concatenate 2x2 neighbours, norm, linear to twice the channels."""
    merged = Feature(x.channels * 4, tuple((n + 1) // 2 for n in x.size))
    rows = b.batch_size * merged.positions
    b.concat(merged)
    b.layer_norm(rows, merged.channels)
    b.linear(rows, merged.channels, 2 * x.channels, bias=False)
    return merged.with_channels(2 * x.channels)


def _block(b: GraphBuilder, work: Workload, x: Feature, heads: int, side: int, shift: bool) -> None:
    width, rows = x.channels, b.batch_size * x.positions
    b.layer_norm(rows, width)
    padded = tuple(-(-n // side) * side for n in x.size)
    windows = b.batch_size * padded[0] * padded[1] // side**2
    with_padding = windows * side**2
    _window_copies(b, with_padding * width, shift)
    b.linear(with_padding, width, 3 * width)
    _window_attention(b, work, windows, heads, side, width, shift)
    b.linear(with_padding, width, width)
    _window_copies(b, with_padding * width, shift)
    b.add(rows * width)
    b.layer_norm(rows, width)
    b.linear(rows, width, 4 * width)
    b.activation(rows * 4 * width)
    b.linear(rows, 4 * width, width)
    b.add(rows * width)


def _window_copies(b: GraphBuilder, elements: int, shift: bool) -> None:
    """Partition into windows (or back), and the cyclic shift of the map before (after) it."""
    b.concat(elements)
    if shift:
        b.concat(elements)


def _window_attention(
    b: GraphBuilder, work: Workload, windows: int, heads: int, side: int, width: int, shift: bool
) -> None:
    """Scores get a relative position bias and, in shifted blocks, the mask of the seam."""
    tokens = side * side
    b.parameters((2 * side - 1) ** 2 * heads)
    b.elementwise(heads * tokens * tokens, kernels=2)
    if not work.flash_attention:
        b.concat(windows * tokens * 3 * width)
        for _ in range(2 if shift else 1):
            b.elementwise(windows * heads * tokens * tokens, backward_reads=1)
    b.attention(
        heads,
        tokens,
        tokens,
        width // heads,
        batch=windows,
        flash=work.flash_attention,
        dropout=False,
    )
    b.concat(windows * tokens * width)
