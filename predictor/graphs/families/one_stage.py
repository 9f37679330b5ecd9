"""One-stage detectors: RetinaNet, SSD-FPN, SSD300 and SSD512, EfficientDet, YOLOv3.

Lin et al. arXiv 1708.02002 (torchvision, detectron2, MLPerf, TensorFlow object detection); Liu et
al. arXiv 1512.02325; Tan et al. arXiv 1911.09070 (EfficientNet, bidirectional pyramid of weighted
sums, separable shared heads), in the form of NVIDIA DeepLearningExamples (effdet); Redmon and
Farhadi arXiv 1804.02767 (Darknet-53 and three detection scales).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..builder import BIASED, Feature, GraphBuilder, Options
from .classifiers import VGG16, Trunk, image_input, plain_stages, stages
from .inverted import InvertedStyle, StageRow, inverted_stages, scaled_stages
from .rcnn import OBJECTS, pyramid


def retinanet(
    b: GraphBuilder,
    trunk: Mapping[str, Any],
    extra_from_pyramid: bool = False,
    head_norm: str = "none",
    anchors: int = 9,
    classes: int = 80,
) -> None:
    """A detector on ``work.image_size`` with 3 channels.

    ``trunk`` holds the fields of ``classifiers.Trunk``. ``extra_from_pyramid`` takes P6 from P5
    (torchvision), not from C5 (detectron2). ``classes`` is the number of logits per anchor;
    with ``head_norm`` the convolutions are shared between levels and the norms are not.
    """
    net = Trunk.of_detector(**trunk)
    features = stages(b, image_input(b), net)[1:]
    levels = pyramid(b, features, finest_frozen=net.frozen_stages > 2)
    coarsest = levels[-1] if extra_from_pyramid else features[-1]
    p6 = b.conv_norm(coarsest, 256, 3, stride=2, **BIASED)
    levels += [p6, b.conv(p6, 256, 3, stride=2, bias=True)]
    layer: Options = {"norm": head_norm, "bias": head_norm == "none"}
    for values in (classes, 4):
        for position, x in enumerate(levels):
            shared = position > 0
            with b.repeat(4):
                b.conv_norm(x, x.channels, 3, shared=shared, **layer)
            # permuted to (positions x anchors, values), then concatenated over the levels
            out = b.conv(x, anchors * values, 3, bias=True, shared=shared)
            with b.repeat(2):
                b.concat(out)
    _anchor_losses(b, anchors * sum(x.positions for x in levels), classes)


def _anchor_losses(b: GraphBuilder, anchors: int, classes: int) -> None:
    """Assignment of ``anchors`` per sample to ground truth, focal loss, L1 on the positives' boxes.

    IoU matrix, maxima, thresholds and targets run image by image with about sixty launches each.
    """
    with b.repeat(b.batch_size):
        b.elementwise(anchors * OBJECTS, reads=16, writes=12, kernels=20, backward_writes=0)
        b.elementwise(anchors, reads=40, writes=30, kernels=40, backward_writes=0)
    b.regression_loss(b.batch_size * anchors * classes, kernels=9)
    b.regression_loss(4 * b.batch_size * anchors, kernels=6)


def ssd(
    b: GraphBuilder,
    extras: Sequence[Sequence[int]],
    blocks: Sequence[int] = (3, 4, 6),
    bottleneck: bool = True,
    vgg: bool = False,
    extra_norm: bool = True,
    boxes: Sequence[int] = (4, 6, 6, 6, 4, 4),
    classes: int = 81,
) -> None:
    """A detector on VGG-16, or on a residual network cut after conv4_x, whose stride becomes 1.

    ``extras`` are rows of (1x1 channels, output channels, kernel, stride, padding), the last three
    optional; ``boxes`` counts the default boxes per position of each map; ``classes`` includes
    the background.
    """
    x = image_input(b)
    if vgg:  # with a dilated fc6: conv4_3 (L2-normalised) and fc7
        conv4 = plain_stages(b, x, VGG16[:4], ceil=True)[-1]
        b.parameters(conv4.channels)
        b.elementwise(conv4, reads=3, writes=2, kernels=5)
        x = b.pool(conv4, 2, ceil=True)
        for _ in range(VGG16[4][1]):
            x = b.conv_norm(x, VGG16[4][0], 3, **BIASED)
        x = b.pool(x, 3, stride=1, padding=1)
        x = b.conv_norm(x, 1024, 3, dilation=6, padding=6, **BIASED)
        maps = [conv4, b.conv_norm(x, 1024, 1, **BIASED)]
    else:
        maps = stages(b, x, Trunk(blocks=blocks, bottleneck=bottleneck), (1, 2, 1))[-1:]
    layer: Options = {"norm": "batch" if extra_norm else "none", "bias": not extra_norm}
    for narrow, out, *shape in extras:
        kernel, stride, padding = (*shape, *(3, 2, 1)[len(shape) :])
        x = b.conv_norm(maps[-1], narrow, 1, **layer)
        maps.append(b.conv_norm(x, out, kernel, stride=stride, padding=padding, **layer))
    for x, count in zip(maps, boxes, strict=True):
        for outputs in (4, classes):
            b.concat(b.conv(x, count * outputs, 3, bias=True))
    # smooth L1, and cross-entropy with hard negative mining; the two sorts over all boxes that rank
    # the negatives are segmented radix sorts of about ten launches each
    rows = b.batch_size * sum(x.positions * count for x, count in zip(maps, boxes, strict=True))
    b.regression_loss(4 * rows, kernels=12)
    b.cross_entropy(rows, classes)
    b.elementwise(rows, reads=16, writes=16, kernels=20, backward_writes=0)
    b.elementwise(rows, reads=6, writes=4, kernels=14, backward_reads=2, backward_kernels=6)


# Nodes of a cell of EfficientDet's pyramid: (level of the node, values it sums). Values 0-4 are
# P3-P7, 5 on the nodes.
_NODES = (
    (3, (3, 4)),
    (2, (2, 5)),
    (1, (1, 6)),
    (0, (0, 7)),
    (1, (1, 7, 8)),
    (2, (2, 6, 9)),
    (3, (3, 5, 10)),
    (4, (4, 11)),
)


def efficientdet(
    b: GraphBuilder,
    stages: Sequence[StageRow],
    stem: int = 32,
    pyramid_channels: int = 64,
    cells: int = 3,
    head_layers: int = 3,
    redundant_bias: bool = False,
    anchors: int = 9,
    classes: int = 90,
) -> None:
    """A detector on ``work.image_size``; ``stages`` are rows of ``families.inverted``.

    ``redundant_bias`` keeps the biases in front of norms, as the TensorFlow original does.
    """
    channels, bias = pyramid_channels, redundant_bias

    def separable(x: Feature, channels: int, *, bias: bool, shared: bool = False) -> Feature:
        x = b.conv(x, x.channels, 3, groups=x.channels, shared=shared)
        return b.conv(x, channels, 1, bias=bias, shared=shared)

    def cell(levels: Sequence[Feature]) -> list[Feature]:
        values = list(levels)
        for level, inputs in _NODES:
            node, n = Feature(channels, levels[level].size), len(inputs)
            for value in inputs:
                x = values[value]
                if x.channels != channels:
                    x = b.conv_norm(x, channels, 1, act="", bias=bias)
                if x.size > node.size:
                    b.pool(x, 3, stride=2, padding=1)
                elif x.size < node.size:
                    b.upsample(x, node.size)
            # each input times its weight over the weights' sum, stacked, added: eager element-wise
            b.parameters(n)
            b.chain(node, (4 * n, 3 * n + 1, 2 * n + 5), (6 * n, 3 * n, 8 * n))
            b.activation(node, "silu")
            separable(node, channels, bias=bias)
            b.norm(node)
            values.append(node)
        return values[-len(levels) :]

    x = b.conv_norm(image_input(b), stem, 3, act="silu", stride=2, data_gradient=False)
    outputs = inverted_stages(b, x, scaled_stages(stages), InvertedStyle())
    levels = [outputs[2], outputs[4], outputs[6]]
    x = b.conv_norm(levels[-1], channels, 1, act="", bias=bias)
    for _ in range(2):
        x = b.pool(x, 3, stride=2, padding=1)
        levels.append(x)
    levels = cell(levels)
    with b.repeat(cells - 1):
        levels = cell(levels)
    for values in (classes, 4):
        for position, x in enumerate(levels):
            shared = position > 0  # each level has norms of its own
            with b.repeat(head_layers):
                separable(x, channels, bias=bias, shared=shared)
                b.norm(x)
                b.activation(x, "silu")
            out = separable(x, anchors * values, bias=True, shared=shared)
            with b.repeat(2):
                b.concat(out)
    _anchor_losses(b, anchors * sum(x.positions for x in levels), classes)


def yolo(b: GraphBuilder, anchors: int = 3, classes: int = 80) -> None:
    """YOLOv3 on ``work.image_size`` with 3 channels."""
    x = b.conv_norm(image_input(b), 32, 3, data_gradient=False)
    features = []
    for repeats in (1, 2, 8, 8, 4):  # Darknet-53
        x = b.conv_norm(x, 2 * x.channels, 3, stride=2)
        with b.repeat(repeats):
            b.conv_norm(b.conv_norm(x, x.channels // 2, 1), x.channels, 3)
            b.add(x)
        features.append(x)
    maps = []
    for position, skip in enumerate(reversed(features[-3:])):
        width = skip.channels // 2
        if position:
            x = b.join(b.upsample(b.conv_norm(x, width, 1), skip.size), skip)
        for channels, kernel in ((width, 1), (2 * width, 3)) * 2 + ((width, 1),):
            x = b.conv_norm(x, channels, kernel)
        maps.append(b.conv(b.conv_norm(x, 2 * width, 3), anchors * (5 + classes), 1, bias=True))
    for out in maps:
        # permutation, box decoding, IoU against the ground truth, cross-entropy of each logit
        b.concat(out)
        b.regression_loss(out, kernels=12)
        cells = b.batch_size * out.positions * 3
        b.elementwise(cells, reads=60, writes=40, kernels=40, backward_writes=0)
