"""DenseNet (Huang et al., arXiv 1608.06993)."""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import Feature, GraphBuilder
from . import Workload, family
from .image import classifier, conv_norm, image_input

MERGED = 4  # layers of one block that are emitted as so many times their mean


@family("densenet")
def densenet(
    b: GraphBuilder,
    work: Workload,
    *,
    blocks: Sequence[int],
    growth: int = 32,
    stem: int = 64,
    deep_stem: bool = False,
    bottleneck: int = 4,
    blur: bool = False,
    classes: int = 1000,
) -> None:
    """Dense blocks of ``blocks[i]`` layers; transitions halve channels and size.

    The work of a layer is linear in its input channels, so neighbours are emitted as repetitions
    of their mean: FLOPs, traffic and parameters stay exact, the graph small. ``blur`` strides the
    stem's pool by a fixed depthwise filter (Zhang, arXiv 1904.11486).
    """
    x = _stem(b, image_input(b, work), stem, deep_stem, blur)
    for position, layers in enumerate(blocks):
        if position:
            x = _transition(b, x)
        x = _dense_block(b, x, layers, growth, bottleneck)
    b.batch_norm(x)
    b.activation(x)
    classifier(b, x, classes)


def _stem(b: GraphBuilder, x: Feature, width: int, deep: bool, blur: bool) -> Feature:
    if deep:
        x = conv_norm(b, x, width // 2, 3, stride=2, first=True)
        x = conv_norm(b, x, width // 2, 3)
        x = conv_norm(b, x, width, 3)
    else:
        x = conv_norm(b, x, width, 7, stride=2, first=True)
    if blur:
        x = b.pool(x, 3, stride=1, padding=1)
        b.concat(x)  # padding by reflection
        with b.frozen():
            return b.conv(x, width, 3, stride=2, groups=width, shared=True)
    return b.pool(x, 3, stride=2, padding=1)


def _transition(b: GraphBuilder, x: Feature) -> Feature:
    b.batch_norm(x)
    b.activation(x)
    return b.pool(b.conv(x, x.channels // 2, 1), 2)


def _dense_block(b: GraphBuilder, x: Feature, layers: int, growth: int, bottleneck: int) -> Feature:
    done = 0
    while done < layers:
        run = _run(layers - done, growth)
        mean = x.channels + growth * done + growth * (run - 1) // 2
        with b.repeat(run):
            _dense_layer(b, x.with_channels(mean), growth, bottleneck)
        done += run
    return x.with_channels(x.channels + growth * layers)


def _run(left: int, growth: int) -> int:
    run = min(left, MERGED)
    return run if growth * (run - 1) % 2 == 0 else run - 1


def _dense_layer(b: GraphBuilder, x: Feature, growth: int, bottleneck: int) -> None:
    b.concat(x)
    b.batch_norm(x)
    b.activation(x)
    y = conv_norm(b, x, bottleneck * growth, 1)
    b.conv(y, growth, 3)
