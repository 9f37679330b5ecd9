"""TResNet (Ridnik et al., arXiv 2003.13630).

Its batch norms hold their activation in place (Rota Bulo et al. arXiv 1712.02616): one pass over
the feature map less than a batch norm and an activation.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from ..registry import family
from ..workload import Workload
from .image import classifier, conv_norm, image_input, squeeze_excite

PATCH = 4  # pixels per side that become channels


@family("tresnet")
def tresnet(
    b: GraphBuilder,
    work: Workload,
    *,
    blocks: Sequence[int],
    width: float = 1.0,
    classes: int = 1000,
) -> None:
    """An image classifier: two stages of basic blocks, two of bottlenecks."""
    image = image_input(b, work)
    planes = int(64 * width)
    x = Feature(image.channels * PATCH**2, tuple(n // PATCH for n in image.size))
    b.elementwise(b.batch_size * x.elements, backward_writes=0)
    x = conv_norm(b, x, planes, 3, act=False, first=True)
    for stage, repeats in enumerate(blocks):
        base = planes * 2**stage
        x = _block(b, x, base, stage, 2 if stage else 1)
        if repeats > 1:
            with b.repeat(repeats - 1):
                x = _block(b, x, base, stage, 1)
    classifier(b, x, classes)


def _block(b: GraphBuilder, x: Feature, planes: int, stage: int, stride: int) -> Feature:
    if stage < 2:
        y = _blurred(b, x, planes, stride)
        y = conv_norm(b, y, planes, 3, act=False)
        squeeze_excite(b, y, max(planes // 4, 64))
    else:
        y = conv_norm(b, x, planes, 1, act=False)
        y = _blurred(b, y, planes, stride)
        if stage < 3:
            squeeze_excite(b, y, max(planes // 2, 64))
        y = conv_norm(b, y, 4 * planes, 1, act=False)
    if stride > 1 or x.channels != y.channels:
        z = b.pool(x, 2, stride=2, ceil=True) if stride > 1 else x
        conv_norm(b, z, y.channels, 1, act=False)
    b.add(y)
    b.activation(y)
    return y


def _blurred(b: GraphBuilder, x: Feature, channels: int, stride: int) -> Feature:
    """3x3 and norm; a stride is a fixed 3x3 filter per channel on the reflected feature map."""
    y = conv_norm(b, x, channels, 3, act=False)
    if stride == 1:
        return y
    b.concat(y)
    with b.frozen():
        return b.conv(y, channels, 3, stride=stride, groups=channels, shared=True)
