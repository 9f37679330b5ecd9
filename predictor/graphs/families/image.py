"""Building blocks that image classifiers share: norms, gates, heads."""

from __future__ import annotations

from ...errors import GraphError
from ..builder import Feature, GraphBuilder
from . import Workload


def image_input(b: GraphBuilder, work: Workload, channels: int = 3) -> Feature:
    """The input image of one sample, counted as what the host sends."""
    x = Feature(channels, work.image)
    b.input(x.elements)
    return x


def round_channels(channels: float, divisor: int = 8, limit: float = 0.9) -> int:
    """The multiple of ``divisor`` nearest to ``channels``, never below ``limit`` of it.

    Sandler et al. arXiv 1801.04381, the rule of all MobileNet and EfficientNet scaling.
    """
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < limit * channels else rounded


def normalise(b: GraphBuilder, x: Feature, norm: str = "batch") -> None:
    """Batch norm, group norm, or batch norm with frozen statistics and affine parameters."""
    if norm == "batch":
        b.batch_norm(x)
    elif norm == "group":
        b.group_norm(x)
    elif norm == "frozen":
        b.elementwise(
            b.batch_size * x.elements,
            reads=2,
            writes=2,
            kernels=2,
            backward_reads=1,
            backward_kernels=1,
        )
    elif norm != "none":
        raise GraphError(f"norm={norm!r} is not known: batch, group, frozen, none")


def conv_norm(
    b: GraphBuilder,
    x: Feature,
    channels: int,
    kernel: int | tuple[int, ...],
    *,
    stride: int = 1,
    padding: int | tuple[int, ...] | None = None,
    groups: int = 1,
    act: bool = True,
    norm: str = "batch",
    first: bool = False,
    function: str = "relu",
) -> Feature:
    """Convolution without bias, norm and (``act``) a ``function``; ``first``: of the network."""
    y = b.conv(
        x, channels, kernel, stride=stride, padding=padding, groups=groups, data_gradient=not first
    )
    normalise(b, y, norm)
    if act:
        b.activation(y, function)
    return y


def squeeze_excite(b: GraphBuilder, x: Feature, squeezed: int) -> None:
    """Global pool, two 1x1 convolutions with bias, sigmoid gate."""
    pooled = b.global_pool(x)
    narrow = b.conv(pooled, squeezed, 1, bias=True)
    b.activation(narrow)
    wide = b.conv(narrow, x.channels, 1, bias=True)
    b.activation(wide, "sigmoid")
    gate(b, x)


def gate(b: GraphBuilder, x: Feature) -> None:
    """Multiply by one value per channel; the gradient of the gate is a product and a sum."""
    b.elementwise(
        b.batch_size * x.elements,
        backward_reads=4,
        backward_writes=2,
        backward_kernels=3,
        function="mul",
    )


def prelu(b: GraphBuilder, x: Feature) -> None:
    """ReLU with a learned slope per channel; its gradient is a product and a sum."""
    b.parameters(x.channels)
    b.elementwise(
        b.batch_size * x.elements, backward_reads=3, backward_writes=2, backward_kernels=2
    )


def classifier(
    b: GraphBuilder, x: Feature, classes: int, *, pool: bool = True, dropout: bool = False
) -> None:
    """Global average pool, (dropout,) one linear layer, cross entropy."""
    if pool:
        x = b.global_pool(x)
    if dropout:
        b.dropout(b.batch_size * x.elements)
    b.linear(b.batch_size, x.elements, classes)
    b.cross_entropy(b.batch_size, classes)
