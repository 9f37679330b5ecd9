"""Image classifiers of linear layers only: MLP-Mixer, ResMLP, gMLP.

Tolstikhin et al. arXiv 2105.01601; Touvron et al. arXiv 2105.03404; Liu et al. arXiv 2105.08050.
"""

from __future__ import annotations

from ..builder import Feature, GraphBuilder
from ..registry import family
from ..workload import Workload
from .vision_blocks import feed_forward, linear_classifier, patches, residual


@family("mixer")
def mixer(
    b: GraphBuilder,
    work: Workload,
    *,
    layers: int,
    hidden: int,
    patch: int = 16,
    style: str = "mixer",
    ffn: int = 0,
    classes: int = 1000,
) -> None:
    """``style``: mixer (two networks), resmlp (one map of positions), gmlp (gated by positions)."""
    x = patches(b, work, hidden, patch)
    rows, inner = b.batch_size * x.positions, ffn or 4 * hidden
    block = {"mixer": _mixer, "resmlp": _resmlp, "gmlp": _gmlp}[style]
    with b.repeat(layers):
        block(b, x, inner)
    if style == "resmlp":
        _affine(b, rows * hidden, hidden)
    else:
        b.layer_norm(rows, hidden)
    b.global_pool(x)
    linear_classifier(b, hidden, classes)


def _mixer(b: GraphBuilder, x: Feature, inner: int) -> None:
    width, rows = x.channels, b.batch_size * x.positions
    b.layer_norm(rows, width)
    b.concat(x)
    feed_forward(b, b.batch_size * width, x.positions, width // 2)
    b.concat(x)
    b.add(x)
    b.layer_norm(rows, width)
    feed_forward(b, rows, width, inner)
    b.add(x)


def _resmlp(b: GraphBuilder, x: Feature, inner: int) -> None:
    width, rows = x.channels, b.batch_size * x.positions
    _affine(b, rows * width, width)
    b.concat(x)
    b.linear(b.batch_size * width, x.positions, x.positions)
    residual(b, rows * width, width)
    _affine(b, rows * width, width)
    feed_forward(b, rows, width, inner)
    residual(b, rows * width, width)


def _gmlp(b: GraphBuilder, x: Feature, inner: int) -> None:
    width, rows = x.channels, b.batch_size * x.positions
    half = inner // 2
    b.layer_norm(rows, width)
    b.linear(rows, width, inner)
    b.activation(rows * inner)
    b.concat(rows * half)
    b.layer_norm(rows, half)
    b.concat(rows * half)
    b.linear(b.batch_size * half, x.positions, x.positions)
    b.multiply(rows * half)
    b.linear(rows, half, width)
    b.add(x)


def _affine(b: GraphBuilder, elements: int, width: int) -> None:
    """Scale and shift per channel without statistics; both gradients are sums over rows."""
    b.parameters(2 * width, 2)
    b.elementwise(elements, backward_reads=5, backward_writes=2, backward_kernels=4)
