"""Two-stage detectors: Faster, Mask, Keypoint and Cascade R-CNN, HTC, panoptic FPN, bare RPN.

Ren et al. arXiv 1506.01497; He et al. arXiv 1703.06870; Cai and Vasconcelos arXiv 1712.00726;
Chen et al. arXiv 1901.07518; Kirillov et al. arXiv 1901.02446. Necks as in detectron2: ``fpn``
(Lin et al. arXiv 1612.03144), ``c4`` (the last residual stage is the region head) and ``dc5`` (the
last stage dilated). Proposal selection and target assignment run image by image as many small
launches; their counts are those of eager maskrcnn-benchmark and detectron2 code paths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ..builder import BIASED, Feature, GraphBuilder, Options
from ..operator import READ_BACK
from .classifiers import Trunk, image_input, stage, stages

ROIS = 512  # regions sampled per image
OBJECTS = 8  # COCO images hold 7.3 objects on average (Lin et al. arXiv 1405.0312)


def rcnn(
    b: GraphBuilder,
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
    positive_rois: int = 128,
) -> None:
    """A detector on ``work.image_size`` (the padded batch) with 3 channels.

    ``trunk`` holds the fields of ``classifiers.Trunk``; ``heads`` are of box, mask, keypoint; none
    means a proposal network alone. ``classes`` includes the background, with boxes and masks of its
    own in maskrcnn-benchmark and torchvision and none in detectron2 (``background_outputs``).
    ``box_stages`` above 1 cascades class-agnostic box heads; ``interleaved`` adds HTC's mask and
    semantic flow; ``stuff_classes`` a panoptic branch. ``positive_rois`` are a quarter of those
    sampled per image at most.
    """
    b.synchronise()  # boxes kept by NMS and drawn for training are counted on the host
    net = Trunk.of_detector(**trunk)
    levels = stages(b, image_input(b), net, (1, 2, 2) if neck == "c4" else (1, 2, 2, 2))
    if neck in ("c4", "dc5"):
        del levels[:-1]
    else:
        levels = pyramid(b, levels, norm=head_norm, finest_frozen=net.frozen_stages > 1)
        levels.append(b.pool(levels[-1], 1, stride=2))
    if rpn:
        anchors, proposals = (15, 2000) if len(levels) == 1 else (3, 1000)
        proposal_network(b, levels, anchors=anchors, proposals=proposals)
    if not heads:
        return

    def interleaved_masks(step: int) -> None:
        """HTC mask head of a stage; features of the stages before run again on its regions."""
        x = roi_align(b, levels[0], positives, 14, len(levels))
        b.add(float(positives * roi_align(b, levels[0], positives, 14).elements))
        with b.regions(positives):
            for _ in range(4 * step):
                b.conv_norm(x, 256, 3, shared=True, **BIASED)
            if step:
                b.conv_norm(x, 256, 1, **BIASED)
                b.add(x)
        mask_head(b, x, positives, foreground)

    foreground = classes if background_outputs else classes - 1
    deltas = 4 if box_stages > 1 else 4 * foreground
    all_rois, positives = ROIS * b.batch_size, positive_rois * b.batch_size
    if neck == "c4":  # the last stage runs on every region; the mask head reuses its output
        match_boxes(b, 2000)
        with b.regions(all_rois):
            x = stage(b, roi_align(b, levels[0], all_rois, 14), net, 3, 2)
            b.global_pool(x)
        box_predictor(b, all_rois, x.channels, classes, deltas)
        if "mask" in heads:
            mask_head(b, x, positives, foreground, convs=0)
        return
    for step in range(box_stages):
        match_boxes(b, 1000)
        x = roi_align(b, levels[0], all_rois, 7, len(levels))
        width = box_head(b, x, all_rois, convs=box_convs, norm=head_norm)
        box_predictor(b, all_rois, width, classes, deltas)
        if interleaved:
            interleaved_masks(step)
    if interleaved:
        fused_semantic(b, levels)
    elif "mask" in heads:
        x = roi_align(b, levels[0], positives, 14, len(levels))
        mask_head(b, x, positives, foreground, norm=head_norm)
    if "keypoint" in heads:
        x = roi_align(b, levels[0], positives, 14, len(levels))
        keypoint_head(b, x, positives, 17)
    if stuff_classes:
        panoptic(b, levels, stuff_classes)


def fused_semantic(b: GraphBuilder, levels: Sequence[Feature]) -> None:
    """HTC semantic branch at stride 8: all levels summed, four convolutions, 183 classes."""
    target = levels[1]
    for x in levels:
        b.conv(x, 256, 1, bias=True)
        if x.size != target.size:
            b.upsample(x, target.size)
        b.add(target)
    with b.repeat(4):
        b.conv_norm(target, 256, 3, **BIASED)
    b.conv_norm(target, 256, 1, **BIASED)
    logits = b.conv(target, 183, 1, bias=True)
    b.cross_entropy(b.batch_size * logits.positions, logits.channels)


def panoptic(b: GraphBuilder, levels: Sequence[Feature], stuff_classes: int) -> None:
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
    logits = b.conv(target.with_channels(128), stuff_classes, 1, bias=True)
    logits = b.upsample(logits, b.work.image)
    b.cross_entropy(b.batch_size * logits.positions, stuff_classes)


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


def proposal_network(
    b: GraphBuilder, levels: Sequence[Feature], *, anchors: int, proposals: int
) -> None:
    """RPN head shared by ``levels``, its losses, and NMS to ``proposals`` boxes per image."""
    for position, x in enumerate(levels):
        shared = position > 0
        hidden = b.conv_norm(x, x.channels, 3, shared=shared, **BIASED)
        for outputs in (anchors, 4 * anchors):
            b.concat(b.conv(hidden, outputs, 1, bias=True, shared=shared))
    total = anchors * sum(x.positions for x in levels)
    # top-k and decoding per level, NMS per level and image, top-k over the levels
    images, decoded = b.batch_size, b.batch_size * 2 * proposals * 4
    b.elementwise(images * total, reads=4, writes=2, kernels=3, backward_writes=0)
    with b.repeat(len(levels)):
        b.elementwise(decoded, reads=20, writes=20, kernels=36, backward_writes=0)
    with b.repeat(len(levels) * images):
        b.elementwise(proposals * proposals / 8, reads=4, writes=2, kernels=24, backward_writes=0)
    with b.repeat(images):
        b.elementwise(proposals * 5, reads=10, writes=10, kernels=12, backward_writes=0)
    match_boxes(b, total)
    # losses on the 256 sampled anchors per image; the gradient is scattered over all of them
    b.regression_loss(b.batch_size * 256 * 5, kernels=20)
    b.elementwise(b.batch_size * total * 5, reads=0, writes=0, backward_reads=1, kernels=4)


def match_boxes(b: GraphBuilder, boxes: int) -> None:
    """Assign ``boxes`` per image to ground truth and sample some: IoU matrix, maxima, draws."""
    with b.repeat(b.batch_size):
        b.elementwise(boxes * OBJECTS, reads=16, writes=12, kernels=20, backward_writes=0)
        b.elementwise(boxes, reads=24, writes=16, kernels=50, backward_writes=0)


def roi_align(b: GraphBuilder, x: Feature, rois: int, pooled: int, levels: int = 1) -> Feature:
    """Bilinear samples of ``rois`` regions of the micro-batch; a feature map per region.

    2x2 samples per bin of four neighbours each, most of them in cache: four reads per output.
    The backward adds them atomically into a zeroed map.
    """
    out = Feature(x.channels, (pooled, pooled))
    b.chain(rois * out.elements, (4, 1, 2 + 6 * levels), (5, 4, 2 + 4 * levels))
    return out


def box_predictor(b: GraphBuilder, rois: int, features: int, logits: int, deltas: int) -> None:
    """Class logits and box deltas of ``rois`` regions, and their losses."""
    b.linear(rois, features, logits)
    b.linear(rois, features, deltas)
    b.cross_entropy(rois, logits)
    b.regression_loss(rois * 4, kernels=24)


def box_head(b: GraphBuilder, x: Feature, rois: int, *, convs: int = 0, norm: str = "none") -> int:
    """Two fully connected layers of 1024, or ``convs`` 3x3 convolutions and one; their width."""
    x = _region_convs(b, x, rois, convs, 256, norm)
    widths = [x.elements, 1024] if convs else [x.elements, 1024, 1024]
    for narrow, wide in pairwise(widths):
        b.dense(rois, narrow, wide)
    return widths[-1]


def mask_head(
    b: GraphBuilder, x: Feature, rois: int, classes: int, *, convs: int = 4, norm: str = "none"
) -> None:
    """3x3 convolutions, a 2x2 deconvolution, one 28x28 mask per class, sigmoid loss."""
    x = _region_convs(b, x, rois, convs, 256, norm)
    with b.regions(rois):
        x = b.conv_transpose(x, 256, 2, stride=2, bias=True)
        b.activation(x)
        x = b.conv(x, classes, 1, bias=True)
    # Targets are cropped from the ground truth, whose polygons the host picks region by region: it
    # reads each index back twice (SegmentationMask of maskrcnn-benchmark), or draws them itself
    # (detectron2, mmdetection). The loss reads the mask of the true class only.
    b.elementwise(rois, kernels=2 * rois, backward_writes=0, function=READ_BACK)
    b.elementwise(rois * x.positions, reads=8, writes=8, kernels=20, backward_writes=0)
    b.regression_loss(rois * x.positions, kernels=6)
    b.elementwise(rois * x.elements, reads=0, writes=0, backward_reads=0)


def keypoint_head(b: GraphBuilder, x: Feature, rois: int, keypoints: int) -> None:
    """Eight 3x3 convolutions of 512, a 4x4 deconvolution, 56x56 heat maps, cross-entropy."""
    x = _region_convs(b, x, rois, 8, 512, "none")
    with b.regions(rois):
        x = b.conv_transpose(x, keypoints, 4, stride=2, padding=1, bias=True)
        x = b.upsample(x, (56, 56))
    b.cross_entropy(rois * keypoints, x.positions)


def _region_convs(
    b: GraphBuilder, x: Feature, rois: int, convs: int, channels: int, norm: str
) -> Feature:
    with b.regions(rois):
        for _ in range(convs):
            x = b.conv_norm(x, channels, 3, norm=norm, bias=norm == "none")
    return x
