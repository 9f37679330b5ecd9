"""Residual networks: ResNet v1/v1.5 and their stems, ResNeXt, SE-ResNe(X)t, wide; as trunks too.

He et al. arXiv 1512.03385; Xie et al. arXiv 1611.05431; Hu et al. arXiv 1709.01507; He et al.
arXiv 1812.01187 (deep stem, average-pooled shortcut). v1.5 puts the stride of a down-sampling
bottleneck into the 3x3 convolution, v1 into the first 1x1.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from ..builder import Feature, GraphBuilder
from . import Workload, family
from .image import classifier, image_input, squeeze_excite

CIFAR_PIXELS = 64  # up to here networks keep the resolution: 3x3 stem, no max-pool (section 4.2)


@dataclass(frozen=True, slots=True)
class Trunk:
    """A residual network without its classifier.

    ``stem_channels`` are the widths of a stem of 3x3 convolutions; empty means one 7x7. ``norm``:
    as ``GraphBuilder.norm``. ``frozen_stages`` counts what is not trained: 1 the stem, 2 the stem
    and the first stage. ``dilated`` keeps the stride of the last stage at 1. ``deformable`` stages
    (counted from the end) use deformable 3x3 convolutions.
    """

    blocks: Sequence[int] = (3, 4, 6, 3)
    stem_channels: Sequence[int] = ()
    bottleneck: bool = True
    groups: int = 1
    width_per_group: int = 64
    stride_in_1x1: bool = False
    se_reduction: int = 0
    average_down: bool = False
    norm: str = "batch"
    frozen_stages: int = 0
    dilated: bool = False
    deformable: int = 0

    @classmethod
    def of_detector(cls, **changes: Any) -> Trunk:
        """As detectors fine-tune it: stem and first stage frozen, norms fixed, stride as in v1."""
        return cls(**{"stride_in_1x1": True, "norm": "frozen", "frozen_stages": 2, **changes})


@family("resnet", Trunk)
def resnet(b: GraphBuilder, work: Workload, *, classes: int = 1000, **trunk: Any) -> None:
    """An image classifier on ``work.image_size`` (height, width) with 3 channels.

    ``trunk`` holds fields of ``Trunk``. Images of at most 64 pixels get the CIFAR stem.
    """
    x = image_input(b, work)
    classifier(b, stages(b, x, Trunk(**trunk))[-1], classes)


def stages(
    b: GraphBuilder, x: Feature, trunk: Trunk, strides: Sequence[int] = (1, 2, 2, 2)
) -> list[Feature]:
    """Stem and one stage for each of ``strides``; each stage's output (a feature pyramid's)."""
    outputs: list[Feature] = []
    with b.forward_only() if trunk.frozen_stages else nullcontext():
        x = _stem(b, x, trunk)
    for index, stride in enumerate(strides):
        with b.forward_only() if index + 1 < trunk.frozen_stages else nullcontext():
            from_frozen = index + 1 == trunk.frozen_stages
            x = stage(b, x, trunk, index, stride, data_gradient=not from_frozen)
        outputs.append(x)
    return outputs


def _stem(b: GraphBuilder, x: Feature, trunk: Trunk) -> Feature:
    """7x7 convolution (or some 3x3) of stride 2, norm, ReLU, 3x3 max-pool of stride 2."""
    norm = trunk.norm
    if min(x.size) <= CIFAR_PIXELS:
        return b.conv_norm(x, 64, 3, norm=norm, data_gradient=False)
    if not trunk.stem_channels:
        x = b.conv_norm(x, 64, 7, stride=2, norm=norm, data_gradient=False)
    for position, width in enumerate(trunk.stem_channels):
        stride = 1 if position else 2
        x = b.conv_norm(x, width, 3, stride=stride, norm=norm, data_gradient=position > 0)
    return b.pool(x, 3, stride=2, padding=1)


def stage(
    b: GraphBuilder,
    x: Feature,
    trunk: Trunk,
    index: int,
    stride: int,
    *,
    data_gradient: bool = True,
) -> Feature:
    """Stage ``index`` (0: res2); without ``data_gradient`` nothing behind its input is trained."""
    stride = 1 if index == 3 and trunk.dilated else stride
    x = _block(b, x, trunk, index, stride, data_gradient)
    if trunk.blocks[index] > 1:
        with b.repeat(trunk.blocks[index] - 1):
            x = _block(b, x, trunk, index, 1, True)
    return x


def _block(
    b: GraphBuilder, x: Feature, trunk: Trunk, index: int, stride: int, data_gradient: bool
) -> Feature:
    """One residual block, shortcut projection included."""
    branch = _bottleneck if trunk.bottleneck else _basic
    y = branch(b, x, trunk, index, stride, data_gradient)
    if trunk.se_reduction:
        squeeze_excite(b, y, y.channels // trunk.se_reduction)
    if stride > 1 or x.channels != y.channels:
        if trunk.average_down and stride > 1:
            x, stride = b.pool(x, 2, stride=stride, ceil=True), 1
        norm, gradient = trunk.norm, data_gradient
        b.conv_norm(x, y.channels, 1, stride=stride, norm=norm, act="", data_gradient=gradient)
    b.add(y)
    b.activation(y)
    return y


def _bottleneck(
    b: GraphBuilder, x: Feature, trunk: Trunk, index: int, stride: int, data_gradient: bool
) -> Feature:
    planes, norm, groups = 64 * 2**index, trunk.norm, trunk.groups
    width = planes * trunk.width_per_group // 64 * groups
    dilation = 2 if index == 3 and trunk.dilated else 1
    early, late = (stride, 1) if trunk.stride_in_1x1 else (1, stride)
    y = b.conv_norm(x, width, 1, stride=early, norm=norm, data_gradient=data_gradient)
    if trunk.deformable and index >= 4 - trunk.deformable:
        _deformable_offsets(b, y, late)
    y = b.conv_norm(y, width, 3, stride=late, dilation=dilation, groups=groups, norm=norm)
    return b.conv_norm(y, planes * 4, 1, act="", norm=norm)


def _basic(
    b: GraphBuilder, x: Feature, trunk: Trunk, index: int, stride: int, data_gradient: bool
) -> Feature:
    planes, norm = 64 * 2**index, trunk.norm
    y = b.conv_norm(x, planes, 3, stride=stride, norm=norm, data_gradient=data_gradient)
    return b.conv_norm(y, planes, 3, act="", norm=norm)


def _deformable_offsets(b: GraphBuilder, x: Feature, stride: int) -> None:
    """Offsets of a deformable 3x3 convolution and the columns its product reads.

    Dai et al. arXiv 1703.06211: sampling writes nine values per input value; the backward
    scatters them twice, to the input and to the offsets.
    """
    offsets = b.conv(x, 18, 3, stride=stride, bias=True)
    columns = b.batch_size * 9 * x.channels * offsets.positions
    b.elementwise(columns, reads=4, backward_reads=6, backward_writes=4, backward_kernels=2)
