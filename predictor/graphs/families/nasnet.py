"""NASNet-A (Zoph et al., arXiv 1707.07012) and PNASNet-5 (Liu et al., arXiv 1712.00559).

A cell takes the outputs of the two cells before it. Equal branches of a cell, and the equal
bodies of a stage, are emitted as repetitions; only the 1x1 convolutions in front differ.
"""

from __future__ import annotations

from ..builder import Feature, GraphBuilder
from ..registry import family
from ..workload import Workload
from .image import classifier, conv_norm, image_input

STEM = 96


@family("nasnet")
def nasnet(
    b: GraphBuilder, work: Workload, *, features: int = 4032, cells: int = 6, classes: int = 1000
) -> None:
    """NASNet-A of three stages of ``cells`` cells; the last gives ``features`` channels."""
    width = features // 24
    stem = conv_norm(b, image_input(b, work), STEM, 3, stride=2, padding=0, act=False, first=True)
    _squeeze(b, stem, width // 4)
    previous = _nas_reduction(b, stem, width // 4, first=True)
    _squeeze(b, previous, width // 2)
    _halve(b, stem, width // 2)
    x = _nas_reduction(b, previous, width // 2)
    for stage in range(3):
        out = width * 2**stage
        if stage:
            _squeeze(b, x, out)
            _squeeze(b, x, out)
            x, previous = _nas_reduction(b, x, out), x
        x = _nas_stage(b, previous, x, out, cells)
    b.activation(x)
    classifier(b, x, classes)


def _nas_stage(b: GraphBuilder, previous: Feature, x: Feature, width: int, cells: int) -> Feature:
    """Cells without a stride; the first halves the output of the cell before the last."""
    out = x.with_channels(6 * width)
    _halve(b, previous, width)
    _squeeze(b, x, width)  # the first cell's right side
    _squeeze(b, x, width)  # the second cell's left side
    with b.repeat(2 * cells - 3):
        _squeeze(b, out, width)
    side = x.with_channels(width)
    with b.repeat(cells):
        for kernel, times in ((5, 2), (3, 3)):
            with b.repeat(times):
                _separable_pair(b, side, width, kernel)
        with b.repeat(3):
            b.pool(side, 3, stride=1, padding=1)
        with b.repeat(5):
            b.add(side)
        b.concat(out)
    return out


def _nas_reduction(b: GraphBuilder, x: Feature, width: int, *, first: bool = False) -> Feature:
    """A strided cell; in the ``first`` one the right side is the stem itself."""
    left = x.with_channels(width)
    right = x if first else left
    y = _separable_pair(b, left, width, 5, stride=2)
    with b.repeat(2):
        _separable_pair(b, right, width, 7, stride=2)
    _separable_pair(b, right, width, 5, stride=2)
    _separable_pair(b, y, width, 3)
    with b.repeat(3):
        b.pool(left, 3, stride=2, padding=1)
    b.pool(y, 3, stride=1, padding=1)
    with b.repeat(5):
        b.add(y)
    return _joined(b, y, 4 * width)


@family("pnasnet")
def pnasnet(
    b: GraphBuilder, work: Workload, *, features: int = 4320, cells: int = 3, classes: int = 1000
) -> None:
    """PNASNet-5 of three stages; the last cells give ``features`` channels."""
    width = features // 20
    stem = conv_norm(b, image_input(b, work), STEM, 3, stride=2, padding=0, act=False, first=True)
    _squeeze(b, stem, width // 4)
    previous = _pnas_body(b, stem, stem.with_channels(width // 4), width // 4, 2, stem=True)
    _halve(b, stem, width // 2)
    _squeeze(b, previous, width // 2)
    side = previous.with_channels(width // 2)
    x = _pnas_body(b, side, side, width // 2, 2)
    for stage in range(3):
        out = width * 2**stage
        if stage:
            _squeeze(b, x, out)
            _squeeze(b, x, out)
            side = x.with_channels(out)
            x, previous = _pnas_body(b, side, side, out, 2), x
        x = _pnas_stage(b, previous, x, out, cells + (stage == 0))
    b.activation(x)
    classifier(b, x, classes)


def _pnas_stage(b: GraphBuilder, previous: Feature, x: Feature, width: int, cells: int) -> Feature:
    out = x.with_channels(5 * width)
    _halve(b, previous, width)
    _squeeze(b, x, width)
    _squeeze(b, x, width)
    with b.repeat(2 * cells - 3):
        _squeeze(b, out, width)
    side = x.with_channels(width)
    with b.repeat(cells):
        _pnas_body(b, side, side, width, 1)
    return out


def _pnas_body(
    b: GraphBuilder, left: Feature, right: Feature, width: int, stride: int, *, stem: bool = False
) -> Feature:
    """The five pairs of branches of a cell; the ``stem`` maps its wider left side."""
    sides = ((left, 1), (right, 1)) if stem else ((right, 2),)
    for kernel in (5, 3):
        for side, times in sides:
            with b.repeat(times):
                _separable_pair(b, side, width, kernel, stride=stride)
    y = _separable_pair(b, right, width, 7, stride=stride)
    _separable_pair(b, y, width, 3)
    for side, times in ((left, 1), (right, 2)):
        with b.repeat(times):
            pooled = b.pool(side, 3, stride=stride, padding=1)
        if stem and side is left:
            b.batch_norm(b.conv(pooled, width, 1))
    if stride > 1:
        _squeeze(b, right, width, stride)
    with b.repeat(5):
        b.add(y)
    return _joined(b, y, 5 * width)


def _squeeze(b: GraphBuilder, x: Feature, width: int, stride: int = 1) -> None:
    """Activation, 1x1 convolution, norm."""
    b.activation(x)
    b.batch_norm(b.conv(x, width, 1, stride=stride))


def _halve(b: GraphBuilder, x: Feature, width: int) -> None:
    """Half of the positions: two strided copies, one shifted, each mapped to half the width."""
    b.activation(x)
    with b.repeat(2):
        half = b.conv(b.pool(x, 1, stride=2), width // 2, 1)
    b.concat(x)  # the shift of the second copy
    b.batch_norm(_joined(b, half, width))


def _joined(b: GraphBuilder, x: Feature, channels: int) -> Feature:
    joined = x.with_channels(channels)
    b.concat(joined)
    return joined


def _separable_pair(
    b: GraphBuilder, x: Feature, width: int, kernel: int, *, stride: int = 1
) -> Feature:
    """Twice activation, depthwise and 1x1 convolution, norm; the first may have a stride."""
    if stride == 1:
        with b.repeat(2):
            return _separable(b, x, width, kernel, 1)
    return _separable(b, _separable(b, x, width, kernel, stride), width, kernel, 1)


def _separable(b: GraphBuilder, x: Feature, width: int, kernel: int, stride: int) -> Feature:
    b.activation(x)
    y = b.conv(x, x.channels, kernel, stride=stride, groups=x.channels)
    y = b.conv(y, width, 1)
    b.batch_norm(y)
    return y
