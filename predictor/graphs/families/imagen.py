"""Text-conditioned diffusion in pixel space: the U-Nets of Imagen, base and super-resolution.

Saharia et al. arXiv 2205.11487, in the layers of JAX-Toolbox rosetta (projects/imagen). Text
embeddings (T5) come from outside; super-resolution also takes a small image, resized.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from ..builder import Feature, GraphBuilder, Options

HEAD_DIM = 64
TEXT_WIDTH, TEXT_TOKENS = 4096, 128  # of T5-XXL
BIAS_BUCKETS = 32  # relative positions of the pooling attention over the text


@dataclass(frozen=True, slots=True)
class _UNet:
    """Blocks that are told a ``vector`` wide time step and the text, ``context`` wide."""

    b: GraphBuilder
    heads: int
    vector: int
    context: int
    project_skip: bool = False

    def start(self, hidden: int, pooled: int, super_resolution: bool) -> Feature:
        """The noised image, the small one scaled up beside it, and what conditions the blocks.

        That are vectors of time (and noise level), the pooled text, and the text projected for
        attention.
        """
        b, batch, width, keys = self.b, self.b.batch_size, self.heads * HEAD_DIM, TEXT_TOKENS + 1
        x = Feature(3, b.work.image)
        b.input(x.elements + TEXT_WIDTH * TEXT_TOKENS)
        b.elementwise(x, reads=2, kernels=4, backward_writes=0)
        if super_resolution:
            b.elementwise(2 * batch * x.elements, kernels=3, backward_writes=0)
        for _ in range(2 if super_resolution else 1):
            b.elementwise(batch * hidden, kernels=3, backward_writes=0)
            self.perceptron(hidden)
        b.parameters(BIAS_BUCKETS * self.heads)
        b.linear(batch, TEXT_WIDTH, width, bias=False, data_gradient=False)
        for _ in range(2):
            b.linear(batch * keys, TEXT_WIDTH, width, bias=False, data_gradient=False)
        b.attention(self.heads, 1, keys, HEAD_DIM, flash=b.work.flash_attention)
        b.linear(batch, width, TEXT_WIDTH, bias=False)
        b.layer_norm(batch, TEXT_WIDTH)
        b.linear(batch, TEXT_WIDTH, pooled)
        b.layer_norm(batch, pooled)
        self.perceptron(pooled)
        b.linear(batch * TEXT_TOKENS, TEXT_WIDTH, self.context, data_gradient=False)
        return x.with_channels(6) if super_resolution else x

    def perceptron(self, width: int) -> None:
        """Two layers to a vector."""
        self.b.dense(self.b.batch_size, width, self.vector, "silu")
        self.b.linear(self.b.batch_size, self.vector, self.vector)

    def norm(self, x: Feature) -> None:
        """Group norm and SiLU."""
        self.b.norm(x, "group")
        self.b.activation(x, "silu")

    def up(self, x: Feature, skips: list[int], width: int, repeats: int) -> Feature:
        """One level of the way up; equal blocks that follow each other are emitted once."""
        taken = [skips.pop() for _ in range(repeats)]
        joined = [x.channels + taken[0], *(width + skip for skip in taken[1:])]
        for channels, group in groupby(joined):
            with self.b.repeat(len(list(group))):
                y = x.with_channels(channels)
                self.b.concat(y)
                self.residual(y, width)
        return x.with_channels(width)

    def blocks(self, x: Feature, width: int, repeats: int, kind: str | None = None) -> Feature:
        """Residual blocks, and attention of a kind behind them."""
        x = self.residual(x, width)
        with self.b.repeat(repeats - 1):
            x = self.residual(x, width)
        if kind:
            self.attend(x, kind)
        return x

    def residual(self, x: Feature, channels: int, scale: int = 0) -> Feature:
        """Two convolutions, the condition shifting and scaling between.

        A positive ``scale`` doubles the image, a negative one halves it.
        """
        b = self.b
        b.activation(float(b.batch_size * self.vector), "silu")
        b.linear(b.batch_size, self.vector, 2 * channels)
        self.norm(x)
        if scale:
            self.rescale(x, scale, shared=False)
            x = self.rescale(x, scale, shared=True)
        y = b.conv(x, channels, 3, bias=True)
        b.norm(y, "group")
        b.elementwise(y, writes=1.25, backward_reads=3, backward_writes=1.25, function="dropout")
        y = b.conv(y, channels, 3, bias=True)
        if self.project_skip or x.channels != channels:
            b.conv(x, channels, 1, bias=True)
        b.add(y)
        return y

    def rescale(self, x: Feature, scale: int, *, shared: bool) -> Feature:
        """A 1x1 convolution on pixels moved into channels, or before they are moved out."""
        b = self.b
        if scale < 0:
            folded = Feature(4 * x.channels, tuple(n // 2 for n in x.size))
            b.concat(folded)
            return b.conv(folded, x.channels, 1, bias=True, shared=shared)
        wide = b.conv(x, 4 * x.channels, 1, bias=True, shared=shared)
        b.norm(wide, "group", affine=not shared)
        b.activation(wide, "silu")
        b.concat(wide)
        return Feature(x.channels, tuple(2 * n for n in x.size))

    def attend(self, x: Feature, kind: str) -> None:
        """Pixels attend to pixels and text (``fused``) or to text alone (``cross``)."""
        b, width, rows = self.b, self.heads * HEAD_DIM, self.b.batch_size * x.positions
        text = b.batch_size * TEXT_TOKENS
        b.norm(x, "group")
        b.norm(x, "group")
        b.norm(Feature(self.context, (TEXT_TOKENS,)), "group")
        b.linear(rows, x.channels, width)
        keys = TEXT_TOKENS + (x.positions if kind == "fused" else 0)
        for side, channels in ((text, self.context), (rows, x.channels)):
            if side == text or kind == "fused":
                b.linear(side, channels, width)
                b.linear(side, channels, width)
        b.concat(2 * b.batch_size * keys * width)
        flash = b.work.flash_attention
        b.attention(self.heads, x.positions, keys, HEAD_DIM, flash=flash, dropout=False)
        b.linear(rows, width, x.channels)
        b.add(x)


def imagen(
    b: GraphBuilder,
    hidden: int,
    multipliers: Sequence[int],
    blocks: Sequence[int],
    attention_sizes: Sequence[int],
    heads: int,
    vector: int,
    context: int,
    super_resolution: bool = False,
) -> None:
    """A U-Net on images of ``work.image_size``; attention where a level has such a height."""
    net = _UNet(b, heads, vector, context)
    x = net.start(hidden, context, super_resolution)
    widths = [hidden * m for m in multipliers]
    x = b.conv(x, widths[0], 3, bias=True, data_gradient=False)
    skips = [x.channels]
    for level, (width, repeats) in enumerate(zip(widths, blocks, strict=True)):
        x = net.blocks(x, width, repeats)
        skips += [width] * repeats
        if x.size[0] in attention_sizes:
            with b.repeat(2 * repeats + 1):  # as many again and one more on the way up
                net.attend(x, "fused")
        if level < len(widths) - 1:
            x = net.residual(x, width, scale=-1)
            skips.append(width)
    x = net.blocks(x, widths[-1], 2, "fused")
    for level in reversed(range(len(widths))):
        x = net.up(x, skips, widths[level], blocks[level] + 1)
        if level:
            x = net.residual(x, widths[level], scale=1)
    net.norm(x)
    x = b.conv(x, 3, 3, bias=True)
    b.regression_loss(x, kernels=4)


def imagen_efficient(
    b: GraphBuilder,
    hidden: int,
    multipliers: Sequence[int],
    blocks: Sequence[int],
    attention: Mapping[int, str],
    heads: int,
    vector: int,
    context: int = 256,
) -> None:
    """The efficient U-Net of super-resolution: strides come before the blocks of a level.

    ``attention`` maps a level (the last one is the middle) to ``fused`` or ``cross``.
    """
    net = _UNet(b, heads, vector, context, project_skip=True)
    x = net.start(hidden, vector, True)
    widths = [hidden * m for m in multipliers]
    x = b.conv(x, widths[0], 3, bias=True, data_gradient=False)
    middle, skips = len(widths) - 1, []
    for level, width in enumerate(widths):
        x = b.conv(x, width, 3, stride=1 if level == middle else 2, padding=1, bias=True)
        x = net.blocks(x, width, blocks[level], attention.get(level))
        if level < middle:
            skips.append(x)
    for level in reversed(range(len(widths))):
        width = widths[level]
        if level < middle:
            x = b.join(x, skips.pop())
        x = net.blocks(x, width, blocks[level], attention.get(level))
        up: Options = {"stride": 1} if level == middle else {"stride": 2, "output_padding": 1}
        x = b.conv_transpose(x, width, 3, padding=1, bias=True, **up)
    x = b.conv(x, 3, 3, bias=True)
    b.regression_loss(x, kernels=4)
