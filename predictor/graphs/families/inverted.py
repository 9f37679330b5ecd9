"""Inverted residuals whose widths are written out block by block.

ReXNet (Han et al. arXiv 2007.00992), MixNet (Tan and Le arXiv 1907.09595), CondConv (Yang et al.
arXiv 1904.04971), pruned EfficientNets (Aflalo et al. arXiv 2002.08258) and HardCoRe-NAS (Nayman
et al. arXiv 2102.11646): networks that no width and depth factors describe.

One row of ``blocks`` is ``[repeats, kernel, stride, expanded, out, se]``, with ``expanded`` 0 for
no expansion, ``se`` the squeezed width, and optionally the number of splits of the expansion and
of the projection behind it. ``kernel`` is a list where channels are split over several kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..builder import Feature, GraphBuilder
from ..operator import Kind
from ..recorder import DATA_GRADIENT, FORWARD, WEIGHT_GRADIENT
from . import Workload, family
from .image import classifier, conv_norm, gate, image_input, normalise, squeeze_excite


@dataclass(frozen=True, slots=True)
class StageRow:
    """One row of ``blocks``; ``experts`` 0 means an ordinary convolution."""

    experts: int
    kernels: Sequence[int]
    stride: int
    expanded: int
    out: int
    se: int
    expansion_splits: int = 1
    projection_splits: int = 1


@dataclass(frozen=True, slots=True)
class Style:
    """What all blocks have in common.

    ``group_size`` are the channels of one group of a depthwise convolution; ``se_norm`` puts a
    norm into the gate; ``partial_skip`` adds the input to the first channels of a wider output.
    """

    norm: str
    group_size: int
    se_norm: bool
    partial_skip: bool


@family("inverted")
def inverted(
    b: GraphBuilder,
    work: Workload,
    *,
    blocks: Sequence[Sequence[Any]],
    stem: int = 32,
    head: int = 1280,
    head_after_pool: int = 0,
    norm: str = "batch",
    group_size: int = 1,
    se_norm: bool = False,
    partial_skip: bool = False,
    experts: int = 0,
    experts_from: int = 0,
    classes: int = 1000,
) -> None:
    """An image classifier; rows from ``experts_from`` on mix ``experts`` weights per sample.

    ``head`` is the width of a last 1x1 convolution, ``head_after_pool`` of one behind the pool.
    """
    style = Style(norm, group_size, se_norm, partial_skip)
    x = conv_norm(b, image_input(b, work), stem, 3, stride=2, norm=norm, first=True)
    for position, (repeats, kernel, *rest) in enumerate(blocks):
        kernels = (kernel,) if isinstance(kernel, int) else kernel
        mixed = experts if position >= experts_from else 0
        row = StageRow(mixed, kernels, *rest)
        with b.repeat(repeats):
            x = _block(b, x, row, style)
    x = b.global_pool(conv_norm(b, x, head, 1, norm=norm))
    if head_after_pool:
        x = b.conv(x, head_after_pool, 1, bias=True)
        b.activation(x)
    classifier(b, x, classes, pool=False, dropout=True)


def _block(b: GraphBuilder, x: Feature, row: StageRow, style: Style) -> Feature:
    if row.experts:
        pooled = b.global_pool(x)
        b.linear(b.batch_size, pooled.channels, row.experts)
        b.activation(b.batch_size * row.experts)
    y = x
    if row.expanded:
        y = _pointwise(b, y, row.expanded, row.expansion_splits, row.experts)
        _norm_act(b, y, style)
    y = _depthwise(b, y, row, style)
    _norm_act(b, y, style)
    if row.se:
        _squeeze_excite(b, y, row.se, style)
    y = _pointwise(b, y, row.out, row.projection_splits, row.experts)
    normalise(b, y, style.norm)
    if row.stride == 1 and x.channels == row.out:
        b.add(y)
    elif style.partial_skip and row.stride == 1 and x.channels < row.out:
        b.add(x)
        b.concat(y)
    return y


def _norm_act(b: GraphBuilder, x: Feature, style: Style) -> None:
    normalise(b, x, style.norm)
    b.activation(x)


def _squeeze_excite(b: GraphBuilder, x: Feature, squeezed: int, style: Style) -> None:
    if not style.se_norm:
        squeeze_excite(b, x, squeezed)
        return
    y = b.conv(b.global_pool(x), squeezed, 1, bias=True)
    b.batch_norm(y)
    b.activation(y)
    b.activation(b.conv(y, x.channels, 1, bias=True))
    gate(b, x)


def _pointwise(b: GraphBuilder, x: Feature, out: int, splits: int, experts: int) -> Feature:
    if experts:
        return mixed_conv(b, x, out, 1, experts)
    if splits == 1:
        return b.conv(x, out, 1)
    b.concat(x)  # a slice of channels is copied before it is convolved
    with b.repeat(splits):
        b.conv(x.with_channels(x.channels // splits), out // splits, 1)
    y = x.with_channels(out)
    b.concat(y)
    return y


def _depthwise(b: GraphBuilder, x: Feature, row: StageRow, style: Style) -> Feature:
    groups, stride = x.channels // style.group_size, row.stride
    if row.experts:
        return mixed_conv(
            b, x, x.channels, row.kernels[0], row.experts, stride=stride, groups=groups
        )
    if len(row.kernels) == 1:
        return b.conv(x, x.channels, row.kernels[0], stride=stride, groups=groups)
    b.concat(x)  # a slice of channels is copied before it is convolved
    part, y = x.channels // len(row.kernels), x
    for position, kernel in enumerate(row.kernels):
        width = part if position else x.channels - part * (len(row.kernels) - 1)
        y = b.conv(x.with_channels(width), width, kernel, stride=stride, groups=width)
    y = y.with_channels(x.channels)
    b.concat(y)
    return y


def mixed_conv(
    b: GraphBuilder,
    x: Feature,
    out: int,
    kernel: int,
    experts: int,
    *,
    stride: int = 1,
    groups: int = 1,
) -> Feature:
    """Convolution whose weights are a mixture of ``experts``, other ones for every sample.

    One GEMM mixes the weights; all samples then form one convolution of as many more groups.
    """
    batch, volume, step = b.batch_size, kernel * kernel, stride * stride
    cin, cout = x.channels // groups, out // groups
    weights = out * cin * volume
    b.linear(batch, experts, weights, bias=False)
    y = Feature(out, tuple((n - 1) // stride + 1 for n in x.size))
    flops = 2.0 * batch * y.positions * weights
    n_in, n_out, mixed = batch * x.elements, batch * y.elements, batch * weights
    tail = (groups * batch, volume, step)
    b.emit(
        Kind.CONV,
        FORWARD,
        (y.positions, cout, cin * volume, *tail),
        flops=flops,
        reads=n_in + mixed,
        writes=n_out,
    )
    b.emit(
        Kind.CONV,
        DATA_GRADIENT,
        (x.positions, cin, cout * volume, *tail),
        flops=flops,
        reads=n_out + mixed,
        writes=n_in,
    )
    b.emit(
        Kind.CONV,
        WEIGHT_GRADIENT,
        (cin * volume, cout, y.positions, *tail),
        flops=flops,
        reads=n_out + n_in,
        writes=mixed,
    )
    return y
