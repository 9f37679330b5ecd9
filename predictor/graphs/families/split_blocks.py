"""Inner convolutions of residual blocks that work on splits of their channels.

Gao et al. arXiv 1904.01169 (Res2Net); Zhang et al. arXiv 2004.08955 (ResNeSt); Li et al. arXiv
1903.06586 (selective kernels).
"""

from __future__ import annotations

from ..builder import Feature, GraphBuilder
from .image import conv_norm, round_channels


def hierarchical(
    b: GraphBuilder, x: Feature, width: int, scale: int, stride: int, groups: int, *, first: bool
) -> Feature:
    """``scale`` splits of ``width`` channels; all but the last pass a 3x3, each with a norm.

    In the first block of a stage the splits are independent and the last is average-pooled; later
    each split adds the one before it.
    """
    part = x.with_channels(width)
    with b.repeat(max(1, scale - 1)):
        if first:
            b.concat(part)
        y = conv_norm(b, part, width, 3, stride=stride, groups=groups)
    if first and scale > 1:
        b.pool(part, 3, stride=stride, padding=1)
    elif not first:
        b.concat(part)
        if scale > 2:
            with b.repeat(scale - 2):
                b.add(y)
    y = y.with_channels(width * scale)
    b.concat(y)
    return y


def split_attention(
    b: GraphBuilder, x: Feature, channels: int, radix: int, stride: int, groups: int
) -> Feature:
    """3x3 into ``radix`` splits, weighted by a softmax over the splits of pooled channels."""
    wide = conv_norm(b, x, channels * radix, 3, stride=stride, groups=groups * radix)
    y = wide.with_channels(channels)
    narrow = max(32, round_channels(x.channels * radix / 4))
    if radix > 1:
        _sum_of(b, y, radix)
    pooled = b.global_pool(y)
    squeezed = b.conv(pooled, narrow, 1, groups=groups, bias=True)
    b.batch_norm(squeezed)
    b.activation(squeezed)
    b.conv(squeezed, channels * radix, 1, groups=groups, bias=True)
    _weigh(b, y, radix)
    return y


def selective_kernel(
    b: GraphBuilder,
    x: Feature,
    channels: int,
    stride: int,
    *,
    ratio: float,
    divisor: int,
    paths: int = 2,
) -> Feature:
    """3x3 at dilation 1 and 2, each on half of the channels, weighted by a softmax over both."""
    part = x.with_channels(x.channels // paths)
    for dilation in range(1, paths + 1):
        b.concat(part)
        y = b.conv(part, channels, 3, stride=stride, dilation=dilation)
        b.batch_norm(y)
        b.activation(y)
    b.concat(y.with_channels(paths * channels))
    _sum_of(b, y, paths)
    pooled = b.global_pool(y)
    squeezed = conv_norm(b, pooled, round_channels(channels * ratio, divisor), 1)
    b.conv(squeezed, paths * channels, 1)
    _weigh(b, y, paths)
    return y


def _sum_of(b: GraphBuilder, y: Feature, parts: int) -> None:
    """The sum of ``parts`` tensors like ``y``; its gradient is broadcast."""
    b.elementwise(b.batch_size * y.elements, reads=parts, backward_reads=1, backward_writes=parts)


def _weigh(b: GraphBuilder, y: Feature, parts: int) -> None:
    """Softmax over the parts, one weight per channel, and the weighted sum of the parts."""
    b.softmax(b.batch_size * y.channels, parts)
    n = b.batch_size * y.elements
    b.elementwise(n * parts, backward_reads=4, backward_writes=2, backward_kernels=3)
    _sum_of(b, y, parts)
