"""One-stage detectors with a shared head on a feature pyramid: RetinaNet, SSD-FPN.

Lin et al. arXiv 1708.02002; torchvision and detectron2 RetinaNet; MLPerf single-stage detector
(ResNeXt-50, Open Images); TensorFlow object detection ``ssd_resnet50_v1_fpn_shared_box_predictor``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..builder import Feature, GraphBuilder
from . import Workload, family
from .fpn import Trunk, extra_levels, norm_layer, pyramid, trunk_stages


@family("retinanet")
def retinanet(
    b: GraphBuilder,
    work: Workload,
    *,
    trunk: Mapping[str, Any],
    extra_from_pyramid: bool = False,
    neck_norm: str = "none",
    head_norm: str = "none",
    tower: int = 4,
    anchors: int = 9,
    classes: int = 80,
) -> None:
    """A detector on ``work.image_size`` with 3 channels.

    ``trunk`` holds the fields of ``fpn.Trunk``. ``extra_from_pyramid`` takes P6 from P5
    (torchvision), not from C5 (detectron2). ``classes`` is the number of logits per anchor;
    with ``head_norm`` the convolutions are shared between levels and the norms are not.
    """
    b.input(3 * work.image[0] * work.image[1])
    net = Trunk(**trunk)
    features = trunk_stages(b, Feature(3, work.image), net)[1:]
    levels = pyramid(b, features, norm=neck_norm, finest_frozen=net.frozen_stages > 2)
    levels += extra_levels(b, levels[-1] if extra_from_pyramid else features[-1])
    for outputs in (classes, 4):
        _head(b, levels, tower, anchors * outputs, head_norm)
    total = anchors * sum(x.positions for x in levels)
    match_anchors(b, total)
    focal_loss(b, total, classes)


def _head(b: GraphBuilder, levels: Sequence[Feature], tower: int, outputs: int, norm: str) -> None:
    """``tower`` 3x3 convolutions and the output one, weights shared between levels."""
    for position, x in enumerate(levels):
        shared = position > 0
        with b.repeat(tower):
            x = b.conv(x, x.channels, 3, bias=norm == "none", shared=shared)
            norm_layer(b, x, norm)
            b.activation(x)
        # permuted to (positions x anchors, values), then concatenated over the levels
        out = b.conv(x, outputs, 3, bias=True, shared=shared)
        with b.repeat(2):
            b.concat(out)


def match_anchors(b: GraphBuilder, anchors: int, *, objects: int = 8) -> None:
    """Assign ``anchors`` per sample to ground truth: IoU matrix, maxima, thresholds, targets.

    Runs image by image with about sixty launches each; COCO images hold 7.3 objects on average
    (Lin et al. arXiv 1405.0312).
    """
    with b.repeat(b.batch_size):
        b.elementwise(anchors * objects, reads=16, writes=12, kernels=20, backward_writes=0)
        b.elementwise(anchors, reads=40, writes=30, kernels=40, backward_writes=0)


def focal_loss(b: GraphBuilder, anchors: int, classes: int) -> None:
    """Sigmoid focal loss over ``anchors x classes`` per sample and L1 on the positives' boxes."""
    b.regression_loss(b.batch_size * anchors * classes, kernels=9)
    b.regression_loss(4 * b.batch_size * anchors, kernels=6)
