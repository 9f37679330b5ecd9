"""LeViT: attention between convolution-like stages, batch norm everywhere (arXiv 2104.01136)."""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from . import Workload, family
from .image import conv_norm, image_input

STEM_STEPS = 4


@family("levit")
def levit(
    b: GraphBuilder,
    work: Workload,
    *,
    widths: Sequence[int],
    depths: Sequence[int],
    heads: Sequence[int],
    key_dim: int,
    classes: int = 1000,
) -> None:
    """Stages joined by attention from every fourth position; two heads (one for distillation)."""
    x = image_input(b, work)
    for step in range(STEM_STEPS):
        width = widths[0] >> (STEM_STEPS - 1 - step)
        last = step == STEM_STEPS - 1
        x = conv_norm(b, x, width, 3, stride=2, act=not last, first=step == 0)
    b.concat(x)
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        if stage:
            x = _shrink(b, x, width, key_dim)
        with b.repeat(depth):
            _attention(b, x, x, heads[stage], key_dim, 2)
            b.add(x)
            _feed_forward(b, x)
    b.global_pool(x)
    for _ in range(2):
        b.batch_norm(Feature(x.channels, (1,)))
        b.linear(b.batch_size, x.channels, classes)
    b.elementwise(b.batch_size * classes, reads=2, kernels=2)
    b.cross_entropy(b.batch_size, classes)


def _linear_norm(b: GraphBuilder, x: Feature, out: int) -> Feature:
    y = x.with_channels(out)
    b.linear(b.batch_size * x.positions, x.channels, out, bias=False)
    b.batch_norm(y)
    return y


def _shrink(b: GraphBuilder, x: Feature, width: int, key_dim: int) -> Feature:
    y = Feature(width, tuple((n + 1) // 2 for n in x.size))
    _attention(b, x, y, x.channels // key_dim, key_dim, 4)
    _feed_forward(b, y)
    return y


def _feed_forward(b: GraphBuilder, x: Feature) -> None:
    b.activation(_linear_norm(b, x, 2 * x.channels))
    _linear_norm(b, x.with_channels(2 * x.channels), x.channels)
    b.add(x)


def _attention(
    b: GraphBuilder, x: Feature, out: Feature, heads: int, key_dim: int, value_ratio: int
) -> None:
    """Queries at the positions of ``out``; values wider than keys; a learned bias per offset."""
    keys, values = heads * key_dim, heads * key_dim * value_ratio
    groups, queries = b.batch_size * heads, out.positions
    if queries == x.positions:
        b.concat(_linear_norm(b, x, 2 * keys + values))
    else:
        b.concat(_linear_norm(b, x, keys + values))
        b.concat(Feature(x.channels, out.size))
        _linear_norm(b, Feature(x.channels, out.size), keys)
    b.parameters(heads * x.positions)
    b.elementwise(heads * queries * x.positions)
    b.batched_matmul(groups, queries, x.positions, key_dim)
    b.elementwise(groups * queries * x.positions, reads=2, writes=2, kernels=2)
    b.softmax(groups * queries, x.positions)
    b.batched_matmul(groups, queries, key_dim * value_ratio, x.positions)
    y = Feature(values, out.size)
    b.concat(y)
    b.activation(y)
    _linear_norm(b, y, out.channels)
