"""Networks assembled from rows of blocks.

GENet, RepVGG, ResNet-T, RegNetZ, BoTNet, HaloNet, LambdaNetworks, MobileViT. One row is
``[kinds, repeats, channels, stride, group_size, ratio]`` with two more for transformers
(``layers``, ``hidden``). ``kinds`` joined by ``+`` alternate and are repeated together; the stride
is that of the first block of the row. ``group_size`` 0 is a dense convolution, 1 a depthwise one.

    bottle     1x1, 3x3, 1x1
    basic      3x3, 3x3
    edge       3x3, 1x1
    rep        3x3 and 1x1 in parallel; ``rep-dense`` ignores the group size
    attn       1x1, self-attention over positions, 1x1
    vit, vit2  MobileViT block, version 1 and 2
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from ...errors import GraphError
from ..builder import Feature, GraphBuilder
from . import Workload, family
from .byob_blocks import BlockRow, RowStyle, basic, bottleneck, convolve, edge, norm_act, rep
from .image import classifier, image_input
from .mobilevit import mobilevit, mobilevit_v2
from .spatial_attention import SpatialAttention, attention_block

Row = Sequence[str | float]

_BLOCKS = {"bottle": bottleneck, "basic": basic, "edge": edge, "rep": rep}


@family("byobnet")
def byobnet(
    b: GraphBuilder,
    work: Workload,
    *,
    rows: Sequence[Row],
    stem: Sequence[int] = (32,),
    stem_pool: bool = False,
    stem_plain: int = 0,
    stem_rep: bool = False,
    head: int = 0,
    style: Mapping[str, Any] | None = None,
    spatial: Mapping[str, Any] | None = None,
    classes: int = 1000,
) -> None:
    """An image classifier.

    ``stem``: widths of 3x3 convolutions, the first of stride 2, the last too where there are
    several and no max-pool; the first ``stem_plain`` have neither norm nor activation.
    ``stem_rep``: the stem is one RepVGG block. ``head``: a last 1x1 convolution of this width.
    ``style`` and ``spatial`` are the fields of ``RowStyle`` and ``SpatialAttention``.
    """
    common = RowStyle(**(style or {}))
    attention = SpatialAttention(**(spatial or {}))
    x = image_input(b, work)
    if stem_rep:
        x = rep(b, x, BlockRow(stem[0], 2, 0, 1), common, first=True)
    else:
        x = _stem(b, x, stem, stem_pool, stem_plain, common)
    for row in rows:
        x = _row(b, work, x, row, common, attention)
    if common.preact:
        b.activation(x)
    if head:
        x = convolve(b, x, head, 1, common)
    classifier(b, x, classes)


def _stem(
    b: GraphBuilder, x: Feature, widths: Sequence[int], pool: bool, plain: int, style: RowStyle
) -> Feature:
    last = len(widths) - 1
    for position, width in enumerate(widths):
        first = position == 0
        stride = 2 if first or (position == last and not pool) else 1
        x = b.conv(x, width, 3, stride=stride, data_gradient=not first)
        if position >= plain:
            norm_act(b, x, style.norm)
    return b.pool(x, 3, stride=2, padding=1) if pool else x


def _row(
    b: GraphBuilder,
    work: Workload,
    x: Feature,
    row: Row,
    style: RowStyle,
    attention: SpatialAttention,
) -> Feature:
    kinds, repeats = str(row[0]).split("+"), int(row[1])
    channels, stride, group, ratio = int(row[2]), int(row[3]), int(row[4]), float(row[5])
    extra = tuple(int(v) for v in row[6:])
    first = BlockRow(channels, stride, group, ratio)
    later = BlockRow(channels, 1, group, ratio)
    x = _block(b, work, x, kinds[0], first, style, attention, extra)
    x = _alternating(b, work, x, kinds[1:], later, style, attention, extra)
    if repeats > 1:
        with b.repeat(repeats - 1):
            x = _alternating(b, work, x, kinds, later, style, attention, extra)
    return x


def _alternating(
    b: GraphBuilder,
    work: Workload,
    x: Feature,
    kinds: Sequence[str],
    row: BlockRow,
    style: RowStyle,
    attention: SpatialAttention,
    extra: tuple[int, ...],
) -> Feature:
    for kind, run in groupby(kinds):
        with b.repeat(len(list(run))):
            x = _block(b, work, x, kind, row, style, attention, extra)
    return x


def _block(
    b: GraphBuilder,
    work: Workload,
    x: Feature,
    kind: str,
    row: BlockRow,
    style: RowStyle,
    attention: SpatialAttention,
    extra: tuple[int, ...],
) -> Feature:
    if kind == "attn":
        return attention_block(b, x, row, style, attention)
    if kind == "vit":
        return mobilevit(b, work, x, extra[0], extra[1], style)
    if kind == "vit2":
        return mobilevit_v2(b, x, extra[0], row.ratio, style)
    if kind == "rep-dense":
        return rep(b, x, BlockRow(row.channels, row.stride, 0, row.ratio), style)
    try:
        block = _BLOCKS[kind]
    except KeyError:
        known = ", ".join((*_BLOCKS, "rep-dense", "attn", "vit", "vit2"))
        raise GraphError(f"block {kind!r} is not known: {known}") from None
    return block(b, x, row, style)
