"""What detectors share: a residual trunk that can be frozen, and the feature pyramid.

Lin et al. arXiv 1612.03144. Fine-tuned detectors freeze the stem and the first stage and turn
batch norm into a fixed scale and shift (``FrozenBatchNorm2d`` of detectron2, maskrcnn-benchmark
and torchvision), which eager PyTorch runs as element-wise kernels; its four vectors are buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from ..builder import Feature, GraphBuilder


@dataclass(frozen=True, slots=True)
class Trunk:
    """A residual network without its classifier.

    ``norm`` is ``frozen``, ``batch`` or ``group``. ``frozen_stages`` counts what is not trained:
    1 the stem, 2 the stem and the first stage. ``dilated`` keeps the stride of the last stage at
    1. ``deformable`` stages (counted from the end) use deformable 3x3 convolutions.
    """

    blocks: Sequence[int] = (3, 4, 6, 3)
    groups: int = 1
    width_per_group: int = 64
    stride_in_1x1: bool = True
    norm: str = "frozen"
    frozen_stages: int = 2
    dilated: bool = False
    deformable: int = 0


def norm_layer(b: GraphBuilder, x: Feature, norm: str) -> None:
    """The norm named ``frozen``, ``batch``, ``group`` or ``none``."""
    if norm == "frozen":
        # x * scale + shift, scale and shift recomputed from four vectors at every call
        b.elementwise(
            b.batch_size * x.elements,
            reads=2,
            writes=2,
            kernels=6,
            backward_reads=1,
            backward_kernels=1,
        )
    elif norm == "batch":
        b.batch_norm(x)
    elif norm == "group":
        b.group_norm(x)


def trunk_stages(b: GraphBuilder, x: Feature, trunk: Trunk, count: int = 4) -> list[Feature]:
    """Stem and the first ``count`` stages on an image; returns each stage's output."""
    with b.forward_only() if trunk.frozen_stages else nullcontext():
        x = b.conv(x, 64, 7, stride=2, data_gradient=False)
        norm_layer(b, x, trunk.norm)
        b.activation(x)
        x = b.pool(x, 3, stride=2, padding=1)
    outputs: list[Feature] = []
    for stage in range(count):
        frozen = stage + 1 < trunk.frozen_stages
        with b.forward_only() if frozen else nullcontext():
            x = trunk_stage(b, x, trunk, stage, from_frozen=stage + 1 == trunk.frozen_stages)
        outputs.append(x)
    return outputs


def trunk_stage(
    b: GraphBuilder, x: Feature, trunk: Trunk, stage: int, *, from_frozen: bool = False
) -> Feature:
    """Stage ``stage`` (0 is res2); ``from_frozen``: nothing behind its input is trained."""
    stride = 1 if stage == 0 or (stage == 3 and trunk.dilated) else 2
    dilation = 2 if stage == 3 and trunk.dilated else 1
    deformable = stage >= 4 - trunk.deformable
    x = _block(b, x, trunk, stage, stride, dilation, deformable, not from_frozen)
    with b.repeat(trunk.blocks[stage] - 1):
        return _block(b, x, trunk, stage, 1, dilation, deformable, True)


def _block(
    b: GraphBuilder,
    x: Feature,
    trunk: Trunk,
    stage: int,
    stride: int,
    dilation: int,
    deformable: bool,
    data_gradient: bool,
) -> Feature:
    planes = 64 * 2**stage
    width, out = planes * trunk.width_per_group // 64 * trunk.groups, planes * 4
    first, second = (stride, 1) if trunk.stride_in_1x1 else (1, stride)
    y = b.conv(x, width, 1, stride=first, data_gradient=data_gradient)
    norm_layer(b, y, trunk.norm)
    b.activation(y)
    if deformable:
        _deformable_offsets(b, y, second)
    y = b.conv(y, width, 3, stride=second, dilation=dilation, groups=trunk.groups)
    norm_layer(b, y, trunk.norm)
    b.activation(y)
    y = b.conv(y, out, 1)
    norm_layer(b, y, trunk.norm)
    if x.channels != out:
        shortcut = b.conv(x, out, 1, stride=stride, data_gradient=data_gradient)
        norm_layer(b, shortcut, trunk.norm)
    b.add(y)
    b.activation(y)
    return y


def _deformable_offsets(b: GraphBuilder, x: Feature, stride: int) -> None:
    """Offsets of a deformable 3x3 convolution and the columns its product reads.

    Dai et al. arXiv 1703.06211: sampling writes nine values per input value; the backward
    scatters them twice, to the input and to the offsets.
    """
    offsets = b.conv(x, 18, 3, stride=stride, bias=True)
    columns = b.batch_size * 9 * x.channels * offsets.positions
    b.elementwise(columns, reads=4, backward_reads=6, backward_writes=4, backward_kernels=2)


def pyramid(
    b: GraphBuilder,
    features: Sequence[Feature],
    *,
    channels: int = 256,
    norm: str = "none",
    finest_frozen: bool = False,
) -> list[Feature]:
    """Lateral 1x1, top-down addition, 3x3 output; finest level first, as given.

    ``finest_frozen``: nothing behind the finest input is trained.
    """
    levels: list[Feature] = []
    bias = norm == "none"
    for position in reversed(range(len(features))):
        gradient = not (finest_frozen and position == 0)
        x = b.conv(features[position], channels, 1, bias=bias, data_gradient=gradient)
        norm_layer(b, x, norm)
        if levels:
            b.upsample(levels[0], x.size)
            b.add(x)
        levels.insert(0, x)
    for x in levels:
        norm_layer(b, b.conv(x, channels, 3, bias=bias), norm)
    return levels


def extra_levels(b: GraphBuilder, source: Feature, channels: int = 256) -> list[Feature]:
    """P6 and P7 of RetinaNet: two 3x3 convolutions of stride 2, a ReLU between."""
    p6 = b.conv(source, channels, 3, stride=2, bias=True)
    b.activation(p6)
    return [p6, b.conv(p6, channels, 3, stride=2, bias=True)]
