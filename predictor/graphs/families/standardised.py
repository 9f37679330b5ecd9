"""Convolutions whose weights are standardised in every step, and the norms that go with them.

Qiao et al. arXiv 1903.10520 (weight standardisation); Brock et al. arXiv 2101.08692 (its scaled
form with a gain per channel); Liu et al. arXiv 2004.02967 (EvoNorm-S0); Singh and Krishnan
arXiv 1911.09737 (filter response norm with a thresholded linear unit).
"""

from __future__ import annotations

from ..builder import Feature, GraphBuilder
from ..operator import Kind
from ..recorder import DATA_GRADIENT, FORWARD
from .image import normalise


def standardised_conv(
    b: GraphBuilder,
    x: Feature,
    channels: int,
    kernel: int,
    *,
    stride: int = 1,
    groups: int = 1,
    scaled: bool = False,
    first: bool = False,
) -> Feature:
    """Convolution with weights of zero mean and unit variance per output channel.

    The weights pass through a batch-norm kernel in which a channel's fan-in takes the place of
    the batch. ``scaled`` adds a gain per channel and a bias.
    """
    fan_in = x.channels // groups * kernel * kernel
    kernels = 2 if scaled else 1  # the gain is multiplied by a constant first
    if scaled:
        b.parameters(channels)
    n, dims = float(fan_in * channels), (fan_in, channels)
    b.emit(Kind.BATCH_NORM, FORWARD, dims, reads=2 * n, writes=n, kernels=kernels)
    b.emit(Kind.BATCH_NORM, DATA_GRADIENT, dims, reads=4 * n, writes=n, kernels=kernels)
    return b.conv(
        x, channels, kernel, stride=stride, groups=groups, bias=scaled, data_gradient=not first
    )


def norm_activation(b: GraphBuilder, x: Feature, norm: str) -> None:
    """A norm and its activation; ``evo`` and ``frn`` are a chain of element-wise kernels.

    ``evo``: product with a slope, sigmoid, gate, cast, variance, its copy to every position,
    division, affine. ``frn``: cast, square, mean, division, affine, maximum with a threshold.
    """
    if norm == "evo":
        _chain(b, x, reads=10, writes=8, kernels=12)
    elif norm == "frn":
        _chain(b, x, reads=7, writes=6, kernels=10)
    else:
        normalise(b, x, norm)
        b.activation(x)


def _chain(b: GraphBuilder, x: Feature, *, reads: float, writes: float, kernels: float) -> None:
    """Scale, shift and slope (or threshold) per channel; the backward is twice the kernels."""
    b.parameters(3 * x.channels, 3)
    b.elementwise(
        b.batch_size * x.elements,
        reads=reads,
        writes=writes,
        kernels=kernels,
        backward_reads=2 * reads,
        backward_writes=1.5 * writes,
        backward_kernels=2 * kernels,
    )
