"""ConvMixer (Trockman and Kolter, arXiv 2201.09792)."""

from __future__ import annotations

from ..builder import Feature, GraphBuilder
from ..registry import family
from ..workload import Workload
from .image import classifier, image_input


@family("convmixer")
def convmixer(
    b: GraphBuilder,
    work: Workload,
    *,
    layers: int,
    hidden: int,
    kernel: int = 9,
    patch: int = 7,
    classes: int = 1000,
) -> None:
    """Patches, then ``layers`` times a depthwise convolution with a skip and a 1x1."""
    x = image_input(b, work)
    x = b.conv(x, hidden, patch, stride=patch, padding=0, bias=True, data_gradient=False)
    _act_norm(b, x)
    with b.repeat(layers):
        b.conv(x, hidden, kernel, groups=hidden, bias=True)
        _act_norm(b, x)
        b.add(x)
        b.conv(x, hidden, 1, bias=True)
        _act_norm(b, x)
    classifier(b, x, classes)


def _act_norm(b: GraphBuilder, x: Feature) -> None:
    b.activation(x)
    b.batch_norm(x)
