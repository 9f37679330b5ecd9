"""Convolutional blocks of the networks that are assembled from rows of blocks.

Lin et al. arXiv 2006.14090 (GENet); Ding et al. arXiv 2101.03697 (RepVGG); Dollar et al. arXiv
2103.06877 (RegNetZ); Liu et al. arXiv 2004.02967 (EvoNorm); Cao et al. arXiv 1904.11492 (global
context).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import GraphError
from ..builder import Feature, GraphBuilder
from .image import channel_attention, gate, normalise, round_channels, squeeze_excite


@dataclass(frozen=True, slots=True)
class RowStyle:
    """What all blocks of one network have in common.

    ``attention``: ``se`` (squeezed to ``se_ratio`` of the gated channels in multiples of
    ``se_divisor``, or of the block's input with ``se_from_input``), ``eca``, ``gca`` or none.
    ``bottle_in``: the inner width is a multiple of the block's input, not of its output.
    ``shortcut=False``: a block that changes its shape has no skip. ``norm``: ``batch``, or
    ``evo`` for EvoNorm-S0, which holds the activation. ``preact``: norm and activation stand in
    front of each convolution.
    """

    attention: str = ""
    se_ratio: float = 1 / 16
    se_divisor: int = 8
    se_from_input: bool = False
    bottle_in: bool = False
    linear_out: bool = False
    extra_conv: bool = False
    shortcut: bool = True
    norm: str = "batch"
    preact: bool = False


@dataclass(frozen=True, slots=True)
class BlockRow:
    """One block: output channels, stride, group size (0: dense), inner width ratio."""

    channels: int
    stride: int
    group_size: int
    ratio: float

    def groups_of(self, channels: int) -> int:
        """Groups of a convolution of this many channels."""
        return channels // self.group_size if self.group_size else 1


def norm_act(b: GraphBuilder, x: Feature, norm: str, *, act: bool = True) -> None:
    """Norm and (``act``) activation; EvoNorm is eager element-wise work with a group variance."""
    if norm != "evo":
        normalise(b, x, norm)
        if act:
            b.activation(x)
        return
    b.group_norm(x)
    if act:
        b.parameters(x.channels)
    gates = 3 if act else 0
    kernels = 4 + gates
    b.elementwise(
        b.batch_size * x.elements,
        reads=1.5 * kernels,
        writes=kernels,
        kernels=kernels,
        backward_reads=2.5 * kernels,
        backward_writes=1.5 * kernels,
        backward_kernels=2 * kernels,
    )


def convolve(
    b: GraphBuilder,
    x: Feature,
    channels: int,
    kernel: int,
    style: RowStyle,
    *,
    stride: int = 1,
    groups: int = 1,
    act: bool = True,
    first: bool = False,
) -> Feature:
    """Convolution with the norm and activation of ``style``, in its order."""
    if style.preact:
        norm_act(b, x, style.norm)
        return b.conv(x, channels, kernel, stride=stride, groups=groups)
    y = b.conv(x, channels, kernel, stride=stride, groups=groups, data_gradient=not first)
    norm_act(b, y, style.norm, act=act)
    return y


def attend(b: GraphBuilder, x: Feature, source: int, style: RowStyle) -> None:
    """The channel attention of ``style`` on ``x``; ``source``: channels of the block's input."""
    if style.attention == "se":
        if style.se_from_input:
            squeezed = round(source * style.se_ratio)
        else:
            squeezed = round_channels(x.channels * style.se_ratio, style.se_divisor, 0)
        squeeze_excite(b, x, squeezed)
    elif style.attention == "eca":
        channel_attention(b, x)
    elif style.attention == "gca":
        _global_context(b, x)
    elif style.attention:
        raise GraphError(f"attention={style.attention!r} is not known: se, eca, gca")


def _global_context(b: GraphBuilder, x: Feature) -> None:
    b.conv(x, 1, 1, bias=True)
    b.softmax(b.batch_size, x.positions)
    b.batched_matmul(b.batch_size, x.channels, 1, x.positions)
    pooled = Feature(x.channels, (1, 1))
    narrow = b.conv(pooled, max(1, x.channels // 8), 1, bias=True)
    b.layer_norm(b.batch_size, narrow.channels)
    b.activation(narrow)
    wide = b.conv(narrow, x.channels, 1, bias=True)
    b.activation(wide)
    gate(b, x)


def join(b: GraphBuilder, x: Feature, y: Feature, stride: int, style: RowStyle) -> Feature:
    """The skip from ``x`` (projected where the shape changes), its addition, the activation."""
    changed = stride > 1 or x.channels != y.channels
    if changed and style.shortcut:
        z = b.conv(x, y.channels, 1, stride=stride)
        if not style.preact:
            norm_act(b, z, style.norm, act=False)
    if style.shortcut or not changed:
        b.add(y)
    if not style.linear_out:
        b.activation(y)
    return y


def bottleneck(b: GraphBuilder, x: Feature, row: BlockRow, style: RowStyle) -> Feature:
    """1x1, one or two 3x3, channel attention, 1x1."""
    inner = round_channels((x.channels if style.bottle_in else row.channels) * row.ratio)
    groups = row.groups_of(inner)
    y = convolve(b, x, inner, 1, style)
    y = convolve(b, y, inner, 3, style, stride=row.stride, groups=groups)
    if style.extra_conv:
        y = convolve(b, y, inner, 3, style, groups=groups)
    attend(b, y, x.channels, style)
    y = convolve(b, y, row.channels, 1, style, act=False)
    return join(b, x, y, row.stride, style)


def basic(b: GraphBuilder, x: Feature, row: BlockRow, style: RowStyle) -> Feature:
    """Two 3x3, channel attention behind both."""
    inner = round_channels(row.channels * row.ratio)
    y = convolve(b, x, inner, 3, style, stride=row.stride)
    y = convolve(b, y, row.channels, 3, style, groups=row.groups_of(inner), act=False)
    attend(b, y, x.channels, style)
    return join(b, x, y, row.stride, style)


def edge(b: GraphBuilder, x: Feature, row: BlockRow, style: RowStyle) -> Feature:
    """3x3, channel attention, 1x1."""
    inner = round_channels(row.channels * row.ratio)
    y = convolve(b, x, inner, 3, style, stride=row.stride, groups=row.groups_of(inner))
    attend(b, y, x.channels, style)
    y = convolve(b, y, row.channels, 1, style, act=False)
    return join(b, x, y, row.stride, style)


def rep(
    b: GraphBuilder, x: Feature, row: BlockRow, style: RowStyle, *, first: bool = False
) -> Feature:
    """RepVGG in training: 3x3, 1x1 and (where the shape stays) a norm of the input, summed."""
    groups = row.groups_of(x.channels)
    if row.stride == 1 and x.channels == row.channels:
        norm_act(b, x, style.norm, act=False)
        b.add(x)
    for kernel in (1, 3):
        y = convolve(
            b,
            x,
            row.channels,
            kernel,
            style,
            stride=row.stride,
            groups=groups,
            act=False,
            first=first,
        )
    b.add(y)
    b.activation(y)
    return y
