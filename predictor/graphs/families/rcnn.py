"""Two-stage detectors: Faster, Mask, Keypoint and Cascade R-CNN, HTC, panoptic FPN, bare RPN.

Ren et al. arXiv 1506.01497; He et al. arXiv 1703.06870; Cai and Vasconcelos arXiv 1712.00726;
Chen et al. arXiv 1901.07518; Kirillov et al. arXiv 1901.02446. Necks as in detectron2: ``fpn``
(Lin et al. arXiv 1612.03144), ``c4`` (the last residual stage is the region head) and ``dc5`` (the
last stage dilated).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..builder import Feature, GraphBuilder, Options
from . import Workload, family, roi
from .image import image_input
from .resnet import Trunk, stage, stages


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

    ``trunk`` holds the fields of ``resnet.Trunk``; ``heads`` are of box, mask, keypoint; none means
    a proposal network alone. ``classes`` includes the background, which has boxes and masks of
    its own in maskrcnn-benchmark and torchvision and none in detectron2 (``background_outputs``).
    ``box_stages`` above 1 cascades class-agnostic box heads; ``interleaved`` adds HTC's mask and
    semantic flow; ``stuff_classes`` a panoptic branch. ``rois`` are sampled per image, at most a
    quarter of them positive.
    """
    b.synchronise()  # boxes kept by NMS and drawn for training are counted on the host
    net = Trunk.of_detector(**trunk)
    levels = _neck(b, image_input(b, work), net, neck, head_norm)
    if rpn:
        anchors, proposals = (15, 2000) if len(levels) == 1 else (3, 1000)
        roi.proposal_network(b, levels, anchors=anchors, proposals=proposals)
    if not heads:
        return
    foreground = classes if background_outputs else classes - 1
    deltas = 4 if box_stages > 1 else 4 * foreground
    all_rois, positives = rois * b.batch_size, positive_rois * b.batch_size
    sampled = _Regions(all_rois, positives, classes, foreground, deltas)
    if neck == "c4":
        _residual_heads(b, levels[0], net, sampled, heads)
        return
    for step in range(box_stages):
        roi.match_boxes(b, 1000)
        x = roi.roi_align(b, levels[0], all_rois, 7, len(levels))
        width = roi.box_head(b, x, all_rois, convs=box_convs, norm=head_norm)
        roi.box_predictor(b, all_rois, width, classes, deltas)
        if interleaved:
            _interleaved_masks(b, levels, sampled, step)
    if interleaved:
        _fused_semantic(b, levels)
    elif "mask" in heads:
        x = roi.roi_align(b, levels[0], positives, 14, len(levels))
        roi.mask_head(b, x, positives, foreground, norm=head_norm)
    if "keypoint" in heads:
        x = roi.roi_align(b, levels[0], positives, 14, len(levels))
        roi.keypoint_head(b, x, positives, 17)
    if stuff_classes:
        _panoptic(b, levels, work.image, stuff_classes)


def _neck(b: GraphBuilder, x: Feature, net: Trunk, neck: str, norm: str) -> list[Feature]:
    if neck == "c4":
        return stages(b, x, net, (1, 2, 2))[-1:]
    features = stages(b, x, net)
    if neck == "dc5":
        return features[-1:]
    levels = pyramid(b, features, norm=norm, finest_frozen=net.frozen_stages > 1)
    return [*levels, b.pool(levels[-1], 1, stride=2)]


def pyramid(
    b: GraphBuilder, features: Sequence[Feature], *, norm: str = "none", finest_frozen: bool = False
) -> list[Feature]:
    """Lateral 1x1, top-down addition, 3x3 output, 256 channels; finest level first, as given.

    ``finest_frozen``: nothing behind the finest input is trained.
    """
    levels: list[Feature] = []
    layer: Options = {"norm": norm, "act": "", "bias": norm == "none"}
    for position in reversed(range(len(features))):
        gradient = not (finest_frozen and position == 0)
        x = b.conv_norm(features[position], 256, 1, data_gradient=gradient, **layer)
        if levels:
            b.upsample(levels[0], x.size)
            b.add(x)
        levels.insert(0, x)
    for x in levels:
        b.conv_norm(x, 256, 3, **layer)
    return levels


def _residual_heads(
    b: GraphBuilder, x: Feature, net: Trunk, sampled: _Regions, heads: Sequence[str]
) -> None:
    """C4: the last stage runs on every region; the mask head reuses its output."""
    roi.match_boxes(b, 2000)
    with b.regions(sampled.rois):
        x = stage(b, roi.roi_align(b, x, sampled.rois, 14), net, 3, 2)
        b.global_pool(x)
    roi.box_predictor(b, sampled.rois, x.channels, sampled.logits, sampled.deltas)
    if "mask" in heads:
        roi.mask_head(b, x, sampled.positives, sampled.foreground, convs=0)


def _interleaved_masks(
    b: GraphBuilder, levels: Sequence[Feature], sampled: _Regions, step: int
) -> None:
    """HTC mask head of a stage; the features of the stages before it run again on its regions."""
    rois = sampled.positives
    x = roi.roi_align(b, levels[0], rois, 14, len(levels))
    b.add(float(rois * roi.roi_align(b, levels[0], rois, 14).elements))
    with b.regions(rois):
        for _ in range(4 * step):
            b.conv_norm(x, 256, 3, norm="none", bias=True, shared=True)
        if step:
            b.conv_norm(x, 256, 1, norm="none", bias=True)
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
        b.conv_norm(target, 256, 3, norm="none", bias=True)
    b.conv_norm(target, 256, 1, norm="none", bias=True)
    logits = b.conv(target, 183, 1, bias=True)
    b.cross_entropy(b.batch_size * logits.positions, logits.channels)


def _panoptic(
    b: GraphBuilder, levels: Sequence[Feature], image: tuple[int, ...], classes: int
) -> None:
    """Semantic branch of panoptic FPN: 128 channels at stride 4, logits at full size."""
    target = levels[0]
    for position, x in enumerate(levels[:4]):
        for _ in range(max(position, 1)):
            x = b.conv_norm(x, 128, 3, norm="group")
            if position:
                sizes = zip(x.size, target.size, strict=True)
                x = b.upsample(x, tuple(min(2 * n, m) for n, m in sizes))
        if position:
            b.add(x)
    logits = b.conv(target.with_channels(128), classes, 1, bias=True)
    logits = b.upsample(logits, image)
    b.cross_entropy(b.batch_size * logits.positions, classes)
