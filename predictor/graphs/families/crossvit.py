"""CrossViT: two transformers on patches of two sizes (Chen et al., arXiv 2103.14899)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..builder import Feature, GraphBuilder
from ..registry import family
from ..workload import Workload
from .image import image_input
from .vision_blocks import (
    class_attention,
    encoder_layer,
    linear_classifier,
    positions,
    special_tokens,
)

PATCHES = (12, 16)


@dataclass(frozen=True, slots=True)
class _Branch:
    width: int
    heads: int
    tokens: int
    ffn: int


@family("crossvit")
def crossvit(
    b: GraphBuilder,
    work: Workload,
    *,
    widths: Sequence[int],
    depths: Sequence[int],
    heads: int,
    ffn_ratio: int = 4,
    scales: int = 3,
    conv_patches: bool = False,
    coarse_ratio: float = 224 / 240,
    classes: int = 1000,
) -> None:
    """``scales`` times: ``depths`` layers on each branch, then class tokens visit the other one.

    The branch of 16-pixel patches sees the image resized by ``coarse_ratio``; ``conv_patches``
    (the dagger variants) cuts patches by three convolutions.
    """
    image = image_input(b, work)
    small = Feature(3, tuple(round(n * coarse_ratio) for n in image.size))
    b.elementwise(b.batch_size * small.elements, backward_writes=0)
    branches = []
    for x, width, patch in zip((image, small), widths, PATCHES, strict=True):
        tokens = _patches(b, x, width, patch, conv_patches).positions + 1
        special_tokens(b, 1, tokens, width)
        positions(b, b.batch_size * tokens, tokens, width)
        branches.append(_Branch(width, heads, tokens, ffn_ratio * width))
    with b.repeat(scales):
        for depth, branch in zip(depths, branches, strict=True):
            with b.repeat(depth):
                encoder_layer(b, work, branch.tokens, branch.width, heads, hidden=branch.ffn)
        _exchange(b, work, branches[0], branches[1])
        _exchange(b, work, branches[1], branches[0])
    for branch in branches:
        b.layer_norm(b.batch_size * branch.tokens, branch.width)
        linear_classifier(b, branch.width, classes)


def _patches(b: GraphBuilder, x: Feature, width: int, patch: int, convolutions: bool) -> Feature:
    if not convolutions:
        x = b.conv(x, width, patch, stride=patch, padding=0, bias=True, data_gradient=False)
    else:
        x = b.conv(x, width // 4, 7, stride=4, bias=True, data_gradient=False)
        b.activation(x)
        if patch == PATCHES[0]:
            x = b.conv(x, width // 2, 3, stride=3, padding=0, bias=True)
            b.activation(x)
            x = b.conv(x, width, 3, bias=True)
        else:
            x = b.conv(x, width // 2, 3, stride=2, bias=True)
            b.activation(x)
            x = b.conv(x, width, 3, stride=2, bias=True)
    b.concat(x)
    return x


def _exchange(b: GraphBuilder, work: Workload, own: _Branch, other: _Branch) -> None:
    """A class token attends to the patches of the other branch, in that branch's width."""
    rows = b.batch_size * other.tokens
    _project(b, own.width, other.width)
    b.concat(rows * other.width)
    b.layer_norm(rows, other.width)
    class_attention(b, work, other.tokens, other.width, other.heads)
    b.add(b.batch_size * other.width)
    _project(b, other.width, own.width)
    b.concat(b.batch_size * own.tokens * own.width)


def _project(b: GraphBuilder, width: int, out: int) -> None:
    b.layer_norm(b.batch_size, width)
    b.activation(b.batch_size * width)
    b.linear(b.batch_size, width, out)
