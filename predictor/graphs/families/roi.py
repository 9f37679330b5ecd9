"""Region heads of two-stage detectors: proposals, ROI align, box, mask and keypoint heads.

Ren et al. arXiv 1506.01497; He et al. arXiv 1703.06870; Cai and Vasconcelos arXiv 1712.00726.
Proposal selection and target assignment run image by image as many small launches; their counts
are those of eager maskrcnn-benchmark and detectron2 code paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ..builder import Feature, GraphBuilder

OBJECTS = 8  # COCO images hold 7.3 objects on average (Lin et al. arXiv 1405.0312)


def proposal_network(
    b: GraphBuilder, levels: Sequence[Feature], *, anchors: int, proposals: int
) -> None:
    """RPN head shared by ``levels``, its losses, and NMS to ``proposals`` boxes per image."""
    for position, x in enumerate(levels):
        shared = position > 0
        hidden = b.conv_norm(x, x.channels, 3, norm="none", bias=True, shared=shared)
        for outputs in (anchors, 4 * anchors):
            b.concat(b.conv(hidden, outputs, 1, bias=True, shared=shared))
    total = anchors * sum(x.positions for x in levels)
    _select_proposals(b, len(levels), total, proposals)
    match_boxes(b, total)
    # losses on the 256 sampled anchors per image; the gradient is scattered over all of them
    b.regression_loss(b.batch_size * 256 * 5, kernels=20)
    b.elementwise(b.batch_size * total * 5, reads=0, writes=0, backward_reads=1, kernels=4)


def _select_proposals(b: GraphBuilder, levels: int, anchors: int, proposals: int) -> None:
    """Top-k and decoding per level, NMS per level and image, top-k over the levels."""
    images, decoded = b.batch_size, b.batch_size * 2 * proposals * 4
    b.elementwise(images * anchors, reads=4, writes=2, kernels=3, backward_writes=0)
    with b.repeat(levels):
        b.elementwise(decoded, reads=20, writes=20, kernels=36, backward_writes=0)
    with b.repeat(levels * images):
        b.elementwise(proposals * proposals / 8, reads=4, writes=2, kernels=24, backward_writes=0)
    with b.repeat(images):
        b.elementwise(proposals * 5, reads=10, writes=10, kernels=12, backward_writes=0)


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
    # targets are cropped from the ground truth; the loss reads the mask of the true class only
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
