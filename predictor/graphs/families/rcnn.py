"""Two-stage detectors: Faster, Mask, Keypoint and Cascade R-CNN, HTC, panoptic FPN, bare RPN.

Ren et al. arXiv 1506.01497; He et al. arXiv 1703.06870; Cai and Vasconcelos arXiv 1712.00726;
Chen et al. arXiv 1901.07518; Kirillov et al. arXiv 1901.02446. Necks as in detectron2: ``fpn``,
``c4`` (the last residual stage is the region head) and ``dc5`` (the last stage dilated).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..builder import Feature, GraphBuilder
from . import Workload, family, roi
from .fpn import Trunk, norm_layer, pyramid, trunk_stage, trunk_stages


@dataclass(frozen=True, slots=True)
class _Regions:
    """Regions of the whole micro-batch, and what is predicted for each.

    ``logits`` counts the background, ``foreground`` is the number of masks, ``deltas`` of box
    coordinates. ``positives`` are the regions that mask and keypoint heads see.
    """

    rois: int
    positives: int
    logits: int
    foreground: int
    deltas: int


@family("rcnn")
def rcnn(
    b: GraphBuilder,
    work: Workload,
    *,
    trunk: Mapping[str, Any],
    neck: str = "fpn",
    rpn: bool = True,
    heads: Sequence[str] = ("box",),
    head_norm: str = "none",
    box_convs: int = 0,
    box_stages: int = 1,
    interleaved: bool = False,
    stuff_classes: int = 0,
    classes: int = 81,
    background_outputs: bool = True,
    rois: int = 512,
    positive_rois: int = 128,
) -> None:
    """A detector on ``work.image_size`` (the padded batch) with 3 channels.

    ``trunk`` holds the fields of ``fpn.Trunk``; ``heads`` are of box, mask, keypoint; none means
    a proposal network alone. ``classes`` includes the background, which has boxes and masks of
    its own in maskrcnn-benchmark and torchvision and none in detectron2 (``background_outputs``).
    ``box_stages`` above 1 cascades class-agnostic box heads; ``interleaved`` adds HTC's mask and
    semantic flow; ``stuff_classes`` a panoptic branch. ``rois`` are sampled per image, at most a
    quarter of them positive.
    """
    b.input(3 * work.image[0] * work.image[1])
    b.synchronise()  # boxes kept by NMS and drawn for training are counted on the host
    net = Trunk(**trunk)
    levels = _neck(b, Feature(3, work.image), net, neck, head_norm)
    if rpn:
        single = len(levels) == 1
        roi.proposal_network(
            b, levels, anchors=15 if single else 3, proposals=2000 if single else 1000
        )
    if not heads:
        return
    foreground = classes if background_outputs else classes - 1
    sampled = _Regions(
        rois * b.batch_size,
        positive_rois * b.batch_size,
        classes,
        foreground,
        4 if box_stages > 1 else 4 * foreground,
    )
    if neck == "c4":
        _residual_heads(b, levels[0], net, sampled, heads)
        return
    for stage in range(box_stages):
        _box_stage(b, levels, sampled, box_convs, head_norm)
        if interleaved:
            _interleaved_masks(b, levels, sampled, stage)
    if interleaved:
        _fused_semantic(b, levels)
    elif "mask" in heads:
        x = roi.roi_align(b, levels[0], sampled.positives, 14, len(levels))
        roi.mask_head(b, x, sampled.positives, sampled.foreground, norm=head_norm)
    if "keypoint" in heads:
        x = roi.roi_align(b, levels[0], sampled.positives, 14, len(levels))
        roi.keypoint_head(b, x, sampled.positives, 17)
    if stuff_classes:
        _panoptic(b, levels, work.image, stuff_classes)


def _neck(b: GraphBuilder, x: Feature, net: Trunk, neck: str, norm: str) -> list[Feature]:
    if neck == "c4":
        return trunk_stages(b, x, net, 3)[-1:]
    features = trunk_stages(b, x, net)
    if neck == "dc5":
        return features[-1:]
    frozen = net.frozen_stages > 1
    levels = pyramid(b, features, norm=norm, finest_frozen=frozen)
    return [*levels, b.pool(levels[-1], 1, stride=2)]


def _residual_heads(
    b: GraphBuilder, x: Feature, net: Trunk, sampled: _Regions, heads: Sequence[str]
) -> None:
    """C4: the last stage runs on every region; the mask head reuses its output."""
    roi.match_boxes(b, 2000)
    with roi.regions(b, sampled.rois):
        x = trunk_stage(b, roi.roi_align(b, x, sampled.rois, 14), net, 3)
        b.global_pool(x)
    roi.box_predictor(b, sampled.rois, x.channels, sampled.logits, sampled.deltas)
    if "mask" in heads:
        roi.mask_head(b, x, sampled.positives, sampled.foreground, convs=0)


def _box_stage(
    b: GraphBuilder, levels: Sequence[Feature], sampled: _Regions, convs: int, norm: str
) -> None:
    roi.match_boxes(b, 1000)
    x = roi.roi_align(b, levels[0], sampled.rois, 7, len(levels))
    width = roi.box_head(b, x, sampled.rois, convs=convs, norm=norm)
    roi.box_predictor(b, sampled.rois, width, sampled.logits, sampled.deltas)


def _interleaved_masks(
    b: GraphBuilder, levels: Sequence[Feature], sampled: _Regions, stage: int
) -> None:
    """HTC mask head of a stage; the features of the stages before it run again on its regions."""
    rois = sampled.positives
    x = roi.roi_align(b, levels[0], rois, 14, len(levels))
    b.add(float(rois * roi.roi_align(b, levels[0], rois, 14).elements))
    with roi.regions(b, rois):
        for _ in range(stage):
            for _ in range(4):
                b.activation(b.conv(x, 256, 3, bias=True, shared=True))
        if stage:
            b.activation(b.conv(x, 256, 1, bias=True))
            b.add(x)
    roi.mask_head(b, x, rois, sampled.foreground)


def _fused_semantic(b: GraphBuilder, levels: Sequence[Feature]) -> None:
    """HTC semantic branch at stride 8: all levels summed, four convolutions, 183 classes."""
    target = levels[1]
    for x in levels:
        b.conv(x, 256, 1, bias=True)
        if x.size != target.size:
            b.upsample(x, target.size)
        b.add(target)
    with b.repeat(4):
        b.activation(b.conv(target, 256, 3, bias=True))
    b.activation(b.conv(target, 256, 1, bias=True))
    logits = b.conv(target, 183, 1, bias=True)
    b.cross_entropy(b.batch_size * logits.positions, logits.channels)


def _panoptic(
    b: GraphBuilder, levels: Sequence[Feature], image: tuple[int, ...], classes: int
) -> None:
    """Semantic branch of panoptic FPN: 128 channels at stride 4, logits at full size."""
    target = levels[0]
    for position, x in enumerate(levels[:4]):
        for _ in range(max(position, 1)):
            x = b.conv(x, 128, 3)
            norm_layer(b, x, "group")
            b.activation(x)
            if position:
                x = b.upsample(
                    x, tuple(min(2 * n, m) for n, m in zip(x.size, target.size, strict=True))
                )
        if position:
            b.add(x)
    logits = b.conv(target.with_channels(128), classes, 1, bias=True)
    logits = b.upsample(logits, image)
    b.cross_entropy(b.batch_size * logits.positions, classes)
