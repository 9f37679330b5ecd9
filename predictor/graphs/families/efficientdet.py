"""EfficientDet: EfficientNet, bidirectional pyramid of weighted sums, separable shared heads.

Tan et al. arXiv 1911.09070, in the form of NVIDIA DeepLearningExamples (effdet).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from . import Workload, family
from .efficientnet import InvertedStyle, StageRow, inverted_stages, scaled_stages
from .retinanet import focal_loss, match_anchors

# A cell's nodes: (level of the node, values it sums). Values 0-4 are P3-P7, 5 on the nodes.
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
_LEVELS = 5


@family("efficientdet")
def efficientdet(
    b: GraphBuilder,
    work: Workload,
    *,
    stages: Sequence[StageRow],
    stem: int = 32,
    pyramid_channels: int = 64,
    cells: int = 3,
    head_layers: int = 3,
    redundant_bias: bool = False,
    anchors: int = 9,
    classes: int = 90,
) -> None:
    """A detector on ``work.image_size``; ``stages`` are rows of ``families.efficientnet``.

    ``redundant_bias`` keeps the biases in front of norms, as the TensorFlow original does.
    """
    b.input(3 * work.image[0] * work.image[1])
    x = b.conv(Feature(3, work.image), stem, 3, stride=2, data_gradient=False)
    b.batch_norm(x)
    b.activation(x, "silu")
    outputs = inverted_stages(b, x, scaled_stages(stages), InvertedStyle())
    levels = [outputs[2], outputs[4], outputs[6]]
    levels.append(
        b.pool(_project(b, levels[-1], pyramid_channels, redundant_bias), 3, stride=2, padding=1)
    )
    levels.append(b.pool(levels[-1], 3, stride=2, padding=1))
    levels = _cell(b, levels, pyramid_channels, redundant_bias)
    with b.repeat(cells - 1):
        levels = _cell(b, levels, pyramid_channels, redundant_bias)
    for values in (classes, 4):
        _head(b, levels, head_layers, anchors * values, redundant_bias)
    total = anchors * sum(x.positions for x in levels)
    match_anchors(b, total)
    focal_loss(b, total, classes)


def _project(b: GraphBuilder, x: Feature, channels: int, bias: bool) -> Feature:
    x = b.conv(x, channels, 1, bias=bias)
    b.batch_norm(x)
    return x


def _cell(b: GraphBuilder, levels: Sequence[Feature], channels: int, bias: bool) -> list[Feature]:
    values = list(levels)
    for level, inputs in _NODES:
        size = levels[level].size
        for value in inputs:
            x = values[value]
            if x.channels != channels:
                x = _project(b, x, channels, bias)
            if x.size > size:
                b.pool(x, 3, stride=2, padding=1)
            elif x.size < size:
                b.upsample(x, size)
        node = Feature(channels, size)
        _weighted_sum(b, node, len(inputs))
        b.activation(node, "silu")
        _separable(b, node, channels, bias=bias)
        b.batch_norm(node)
        values.append(node)
    return values[-_LEVELS:]


def _weighted_sum(b: GraphBuilder, x: Feature, inputs: int) -> None:
    """Each input times its weight over the weights' sum, stacked, added: eager element-wise."""
    b.parameters(inputs)
    b.elementwise(
        b.batch_size * x.elements,
        reads=4 * inputs,
        writes=3 * inputs + 1,
        kernels=2 * inputs + 5,
        backward_reads=6 * inputs,
        backward_writes=3 * inputs,
        backward_kernels=8 * inputs,
    )


def _separable(
    b: GraphBuilder, x: Feature, channels: int, *, bias: bool, shared: bool = False
) -> Feature:
    x = b.conv(x, x.channels, 3, groups=x.channels, shared=shared)
    return b.conv(x, channels, 1, bias=bias, shared=shared)


def _head(
    b: GraphBuilder, levels: Sequence[Feature], layers: int, outputs: int, bias: bool
) -> None:
    """Separable convolutions shared between levels, each level with norms of its own."""
    for position, x in enumerate(levels):
        shared = position > 0
        with b.repeat(layers):
            _separable(b, x, x.channels, bias=bias, shared=shared)
            b.batch_norm(x)
            b.activation(x, "silu")
        out = _separable(b, x, outputs, bias=True, shared=shared)
        with b.repeat(2):
            b.concat(out)
