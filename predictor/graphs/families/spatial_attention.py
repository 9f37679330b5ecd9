"""Self-attention over feature maps: all pairs, haloed blocks, lambda layers.

Srinivas et al. arXiv 2101.11605 (BoTNet); Vaswani et al. arXiv 2103.12731 (HaloNet); Bello arXiv
2102.08602 (LambdaNetworks).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import GraphError
from ..builder import Feature, GraphBuilder
from .byob_blocks import BlockRow, RowStyle, convolve, join, norm_act
from .image import round_channels


@dataclass(frozen=True, slots=True)
class SpatialAttention:
    """``kind``: ``bottleneck``, ``halo`` or ``lambda``.

    ``head_dim`` is of queries and keys (0: that of the values, times ``qk_ratio``). ``block`` and
    ``halo`` are in pixels; ``reach`` is the kernel of the lambda layer's positional convolution,
    0 for a table of relative positions.
    """

    kind: str = ""
    heads: int = 4
    head_dim: int = 0
    qk_ratio: float = 1.0
    block: int = 8
    halo: int = 3
    reach: int = 9

    def key_dim(self, channels: int) -> int:
        """Channels of one head's queries."""
        return self.head_dim or round_channels(channels * self.qk_ratio) // self.heads


def attention_block(
    b: GraphBuilder, x: Feature, row: BlockRow, style: RowStyle, attention: SpatialAttention
) -> Feature:
    """1x1, self-attention (average-pooled where strided), norm and activation, 1x1."""
    inner = round_channels((x.channels if style.bottle_in else row.channels) * row.ratio)
    y = convolve(b, x, inner, 1, style)
    layers = {"bottleneck": _bottleneck, "halo": _halo, "lambda": _lambda}
    if attention.kind not in layers:
        raise GraphError(f"attention kind {attention.kind!r} is not known: {', '.join(layers)}")
    layers[attention.kind](b, y, attention)
    if row.stride > 1:
        y = b.pool(y, 2)
    norm_act(b, y, style.norm)
    y = convolve(b, y, row.channels, 1, style, act=False)
    return join(b, x, y, row.stride, style)


def _bottleneck(b: GraphBuilder, x: Feature, attention: SpatialAttention) -> None:
    key, length = attention.key_dim(x.channels), x.positions
    b.conv(x, 2 * attention.heads * key + x.channels, 1)
    b.concat(b.batch_size * (2 * attention.heads * key + x.channels) * length)
    maps = b.batch_size * attention.heads
    b.parameters((2 * x.size[0] - 1 + 2 * x.size[1] - 1) * key, 2)
    for side in x.size:
        _relative_logits(b, maps * length, 2 * side - 1, key)
    _scores(b, maps, length, length, key, x.channels // attention.heads)
    b.concat(x)


def _halo(b: GraphBuilder, x: Feature, attention: SpatialAttention) -> None:
    key, side = attention.key_dim(x.channels), attention.block
    window = side + 2 * attention.halo
    width = attention.heads * key + x.channels
    b.conv(x, attention.heads * key, 1)
    b.conv(x, width, 1)
    b.concat(b.batch_size * attention.heads * key * x.positions)
    blocks = x.positions // side**2
    haloed = b.batch_size * width * blocks * window**2
    b.elementwise(haloed, backward_reads=1, kernels=2, backward_kernels=4)
    maps = b.batch_size * attention.heads * blocks
    b.parameters(2 * (2 * window - 1) * key, 2)
    for _ in x.size:
        _relative_logits(b, maps * side**2, 2 * window - 1, key)
    _scores(b, maps, side**2, window**2, key, x.channels // attention.heads)
    b.concat(x)


def _relative_logits(b: GraphBuilder, rows: int, offsets: int, key: int) -> None:
    """Queries times one axis' position vectors, shifted into place by two paddings.

    The vectors are the caller's weights; both gradients are taken.
    """
    b.linear(rows, key, offsets, bias=False, shared=True)
    b.elementwise(rows * offsets, kernels=2, writes=2, reads=2, backward_kernels=2)


def _scores(b: GraphBuilder, maps: int, queries: int, keys: int, key: int, value: int) -> None:
    """Scaled scores plus the logits of both axes, softmax, weighted values."""
    b.batched_matmul(maps, queries, keys, key)
    n = maps * queries * keys
    b.elementwise(n, reads=1, backward_reads=1)
    b.elementwise(n, reads=4, writes=2, kernels=2, backward_reads=2, backward_writes=2)
    b.softmax(maps * queries, keys)
    b.batched_matmul(maps, queries, value, keys)


def _lambda(b: GraphBuilder, x: Feature, attention: SpatialAttention) -> None:
    key, heads, length = attention.head_dim or 16, attention.heads, x.positions
    value = x.channels // heads
    b.conv(x, heads * key + key + value, 1)
    b.batch_norm(Feature(heads * key, x.size))
    b.batch_norm(Feature(value, x.size))
    b.softmax(b.batch_size * key, length)
    b.batched_matmul(b.batch_size, key, value, length)
    b.batched_matmul(b.batch_size * heads, length, value, key)
    if attention.reach:
        reach = attention.reach
        pad = reach // 2
        volume = Feature(1, (*x.size, value))
        b.conv(volume, key, (reach, reach, 1), padding=(pad, pad, 0), bias=True)
    else:
        b.parameters((2 * x.size[0] - 1) * (2 * x.size[1] - 1) * key)
        b.elementwise(length * length * key, backward_reads=1, backward_kernels=2)
        b.concat(b.batch_size * length * length * (key + value))
        b.batched_matmul(b.batch_size * length, key, value, length)
    lambdas = b.batch_size * heads * length * key * value
    b.elementwise(lambdas, reads=1 / heads, backward_reads=1, backward_writes=1 / heads)
    b.batched_matmul(b.batch_size * heads * length, 1, value, key)
    b.add(x)
    b.concat(x)
