"""CycleGAN: two residual generators and two patch discriminators in one training step.

Zhu et al. arXiv 1703.10593 (pytorch-CycleGAN-and-pix2pix). A sample is a pair of images. The
generators run six times (translation, reconstruction and identity, both ways); in their update
the discriminators pass gradients on without learning, then learn from real and translated images.
"""

from __future__ import annotations

from contextlib import nullcontext

from ..builder import Feature, GraphBuilder
from . import Workload, family


@family("cyclegan")
def cyclegan(b: GraphBuilder, work: Workload, *, width: int = 64, residual_blocks: int = 9) -> None:
    """Both domains at ``work.image_size`` with 3 channels; networks without affine norms."""
    image = Feature(3, work.image)
    b.input(2 * image.elements)
    elements = b.batch_size * image.elements
    with b.repeat(2):
        for use in range(3):
            _generator(b, image, width, residual_blocks, shared=use > 0, chained=use == 1)
        b.regression_loss(elements, kernels=4)
        b.regression_loss(elements, kernels=4)
        for use in range(3):
            with b.frozen() if use == 0 else nullcontext():
                x = _discriminator(b, image, width, shared=use != 1, image_gradient=use == 0)
            b.regression_loss(b.batch_size * x.elements, kernels=4)


def _generator(
    b: GraphBuilder, x: Feature, width: int, blocks: int, *, shared: bool, chained: bool
) -> None:
    """``chained``: the input is another generator's output and wants a gradient."""
    b.concat(Feature(3, tuple(n + 6 for n in x.size)))
    x = b.conv(x, width, 7, bias=True, shared=shared, data_gradient=chained)
    _finish(b, x)
    for factor in (2, 4):
        x = b.conv(x, width * factor, 3, stride=2, padding=1, bias=True, shared=shared)
        _finish(b, x)
    with b.repeat(blocks):
        for _ in range(2):
            b.concat(Feature(x.channels, tuple(n + 2 for n in x.size)))
            b.conv(x, x.channels, 3, bias=True, shared=shared)
            b.instance_norm(x, affine=False)
        b.activation(x)
        b.add(x)
    for factor in (2, 1):
        x = b.conv_transpose(
            x, width * factor, 3, stride=2, padding=1, output_padding=1, bias=True, shared=shared
        )
        _finish(b, x)
    x = b.conv(x, 3, 7, bias=True, shared=shared)
    b.activation(x)


def _discriminator(
    b: GraphBuilder, x: Feature, width: int, *, shared: bool, image_gradient: bool
) -> Feature:
    """The 70x70 patch classifier: 4x4 convolutions, three of them strided."""
    for position, (factor, stride) in enumerate(((1, 2), (2, 2), (4, 2), (8, 1))):
        x = b.conv(
            x,
            width * factor,
            4,
            stride=stride,
            padding=1,
            bias=True,
            shared=shared,
            data_gradient=position > 0 or image_gradient,
        )
        if position:
            b.instance_norm(x, affine=False)
        b.activation(x)
    return b.conv(x, 1, 4, padding=1, bias=True, shared=shared)


def _finish(b: GraphBuilder, x: Feature) -> None:
    b.instance_norm(x, affine=False)
    b.activation(x)
