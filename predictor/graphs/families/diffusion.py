"""Text-conditioned latent diffusion: the U-Net of Stable Diffusion.

Rombach et al. arXiv 2112.10752; diffusers UNet2DConditionModel. Image latents are precomputed
(the autoencoder does not run in training); the text encoder runs forward where asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..builder import Feature, GraphBuilder
from . import Workload, family


@dataclass(frozen=True, slots=True)
class _Condition:
    """What every block is told: the time embedding's width, the text's width and length."""

    time: int
    context: int
    tokens: int
    head_dim: int
    flash: bool


@family("diffusion")
def diffusion(
    b: GraphBuilder,
    work: Workload,
    *,
    widths: Sequence[int] = (320, 640, 1280, 1280),
    attention: Sequence[bool] = (True, True, True, False),
    blocks: int = 2,
    head_dim: int = 64,
    context: int = 1024,
    context_tokens: int = 77,
    text_layers: int = 0,
    latent_channels: int = 4,
    latent_factor: int = 8,
) -> None:
    """A denoising step on latents of ``work.image_size`` / ``latent_factor``.

    ``attention`` says which levels have transformer blocks; ``text_layers`` > 0 runs that many
    frozen layers of a text encoder ``context`` wide.
    """
    x = Feature(latent_channels, tuple(n // latent_factor for n in work.image))
    b.input(2 * x.elements + context_tokens * (1 if text_layers else context))
    condition = _Condition(4 * widths[0], context, context_tokens, head_dim, work.flash_attention)
    _text_encoder(b, condition, text_layers)
    b.elementwise(b.batch_size * x.elements, reads=3, writes=2, kernels=6, backward_writes=0)
    for narrow in (widths[0], condition.time):
        b.linear(b.batch_size, narrow, condition.time)
        b.activation(float(b.batch_size * condition.time), "silu")
    x, skips = _down(b, x, widths, attention, blocks, condition)
    x = _residual(b, x, x.channels, condition)
    _transformer(b, x, condition)
    x = _residual(b, x, x.channels, condition)
    x = _up(b, x, skips, widths, blocks, condition)
    _group_norm(b, x)
    x = b.conv(x, latent_channels, 3, bias=True)
    b.regression_loss(int(b.batch_size * x.elements), kernels=3)


def _down(
    b: GraphBuilder,
    x: Feature,
    widths: Sequence[int],
    attention: Sequence[bool],
    blocks: int,
    condition: _Condition,
) -> tuple[Feature, list[Feature]]:
    """The contracting path; also emits the equal transformer blocks of the way up."""
    x = b.conv(x, widths[0], 3, bias=True, data_gradient=False)
    skips = [x]
    for level, width in enumerate(widths):
        for _ in range(blocks):
            x = _residual(b, x, width, condition)
            skips.append(x)
        if attention[level]:
            with b.repeat(2 * blocks + 1):
                _transformer(b, x, condition)
        if level < len(widths) - 1:
            x = b.conv(x, width, 3, stride=2, padding=1, bias=True)
            skips.append(x)
    return x, skips


def _up(
    b: GraphBuilder,
    x: Feature,
    skips: list[Feature],
    widths: Sequence[int],
    blocks: int,
    condition: _Condition,
) -> Feature:
    for level in reversed(range(len(widths))):
        for _ in range(blocks + 1):
            x = x.with_channels(x.channels + skips.pop().channels)
            b.concat(x)
            x = _residual(b, x, widths[level], condition)
        if level:
            x = b.conv(b.upsample(x, skips[-1].size), x.channels, 3, bias=True)
    return x


def _residual(b: GraphBuilder, x: Feature, channels: int, condition: _Condition) -> Feature:
    _group_norm(b, x)
    y = b.conv(x, channels, 3, bias=True)
    b.activation(float(b.batch_size * condition.time), "silu")
    b.linear(b.batch_size, condition.time, channels)
    b.add(y)
    _group_norm(b, y)
    y = b.conv(y, channels, 3, bias=True)
    if x.channels != channels:
        b.conv(x, channels, 1, bias=True)
    b.add(y)
    return y


def _group_norm(b: GraphBuilder, x: Feature) -> None:
    b.group_norm(x)
    b.activation(x, "silu")


def _transformer(b: GraphBuilder, x: Feature, condition: _Condition) -> None:
    """Self-attention, cross-attention to the text, gated feed-forward, between projections."""
    width, rows = x.channels, b.batch_size * x.positions
    b.group_norm(x)
    b.linear(rows, width, width)
    _attention(b, x, width, x.positions, condition)
    _attention(b, x, condition.context, condition.tokens, condition)
    b.layer_norm(rows, width)
    b.linear(rows, width, 8 * width)
    b.activation(float(rows * 4 * width), "gelu")
    b.multiply(float(rows * 4 * width))
    b.linear(rows, 4 * width, width)
    b.add(x)
    b.linear(rows, width, width)
    b.add(x)


def _attention(
    b: GraphBuilder, x: Feature, key_width: int, keys: int, condition: _Condition
) -> None:
    width, rows = x.channels, b.batch_size * x.positions
    own = keys == x.positions and key_width == width
    b.layer_norm(rows, width)
    b.linear(rows, width, width, bias=False)
    for _ in range(2):
        b.linear(b.batch_size * keys, key_width, width, bias=False, data_gradient=own)
    b.attention(
        width // condition.head_dim,
        x.positions,
        keys,
        condition.head_dim,
        flash=condition.flash,
        dropout=False,
    )
    b.linear(rows, width, width)
    b.add(x)


def _text_encoder(b: GraphBuilder, condition: _Condition, layers: int) -> None:
    """Frozen causal transformer (heads of 64, feed-forward of four times the width)."""
    if not layers:
        return
    width, rows = condition.context, b.batch_size * condition.tokens
    with b.forward_only(), b.repeat(layers):
        for inner in (3 * width, width):
            if inner != width:
                b.layer_norm(rows, width)
            b.linear(rows, width, inner)
            if inner != width:
                b.attention(width // 64, condition.tokens, condition.tokens, 64, dropout=False)
        b.layer_norm(rows, width)
        b.linear(rows, width, 4 * width)
        b.activation(float(rows * 4 * width), "gelu")
        b.linear(rows, 4 * width, width)
        b.elementwise(rows * width, reads=2, kernels=2)
