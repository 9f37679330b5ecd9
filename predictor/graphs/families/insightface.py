"""Face recognition: an embedding network and an ArcFace head over identities.

Deng et al. arXiv 1801.07698 (ArcFace, LResNet-IR); Chen et al. arXiv 1804.07573 (MobileFaceNet);
An et al. arXiv 2010.05222 (the head is split over GPUs, each scores the global batch on its share
of the classes, which is as much work as scoring its own batch on all of them).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from . import Workload, family
from .efficientnet import InvertedStyle, StageRow, inverted_stages, scaled_stages
from .image import conv_norm, image_input, prelu

WIDTHS = (64, 128, 256, 512)


@family("insightface")
def iresnet(
    b: GraphBuilder,
    work: Workload,
    *,
    blocks: Sequence[int],
    emb: int = 512,
    classes: int = 85742,
    partial_fc_sample_ratio: float = 1.0,
) -> None:
    """Improved residual network; ``partial_fc_sample_ratio`` of the classes is scored in a step."""
    x = _stem(b, work, 1)
    for width, repeats in zip(WIDTHS, blocks, strict=True):
        x = _block(b, x, width, 2)
        with b.repeat(repeats - 1):
            x = _block(b, x, width, 1)
    b.batch_norm(x)
    b.dropout(x)
    b.linear(b.batch_size, x.elements, emb)
    b.batch_norm(Feature(emb, (1,)))
    arcface(b, emb, classes, partial_fc_sample_ratio)


def _stem(b: GraphBuilder, work: Workload, stride: int) -> Feature:
    x = conv_norm(b, image_input(b, work), WIDTHS[0], 3, stride=stride, act=False, first=True)
    prelu(b, x)
    return x


def _block(b: GraphBuilder, x: Feature, width: int, stride: int) -> Feature:
    b.batch_norm(x)
    y = conv_norm(b, x, width, 3, act=False)
    prelu(b, y)
    y = conv_norm(b, y, width, 3, stride=stride, act=False)
    if stride > 1:
        conv_norm(b, x, width, 1, stride=stride, act=False)
    b.add(y)
    return y


@family("mobilefacenet")
def mobilefacenet(
    b: GraphBuilder,
    work: Workload,
    *,
    stages: Sequence[StageRow],
    head: int = 512,
    emb: int = 128,
    classes: int = 85742,
    partial_fc_sample_ratio: float = 1.0,
) -> None:
    """Inverted residuals with PReLU, global depthwise convolution instead of pooling."""
    x = _stem(b, work, 2)
    x = conv_norm(b, x, WIDTHS[0], 3, groups=WIDTHS[0], act=False)
    prelu(b, x)
    x = inverted_stages(b, x, scaled_stages(stages), InvertedStyle(prelu=True))[-1]
    x = conv_norm(b, x, head, 1, act=False)
    prelu(b, x)
    x = conv_norm(b, x, head, x.size, padding=0, groups=head, act=False)
    b.linear(b.batch_size, x.elements, emb)
    b.batch_norm(Feature(emb, (1,)))
    arcface(b, emb, classes, partial_fc_sample_ratio)


def arcface(b: GraphBuilder, emb: int, classes: int, sample_ratio: float = 1.0) -> None:
    """Cosine logits against one normalised centre per class, angular margin, cross entropy.

    The centres stay on their GPU and are never all-reduced.
    """
    sampled = max(1, int(classes * sample_ratio))
    b.elementwise(b.batch_size * emb, kernels=2)
    b.elementwise(float(sampled * emb), reads=2, kernels=2, backward_reads=3)
    b.parameters(classes * emb, sparse=True)
    b.linear(b.batch_size, emb, sampled, bias=False, shared=True)
    b.elementwise(float(b.batch_size * sampled), kernels=2)
    b.cross_entropy(b.batch_size, sampled)
