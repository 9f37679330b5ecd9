"""Generators of images and video: Stable Diffusion's U-Net, diffusion transformers, CycleGAN.

Rombach et al. arXiv 2112.10752 (diffusers UNet2DConditionModel); Peebles and Xie arXiv 2212.09748
(DiT; NeMo for video); Zhu et al. arXiv 1703.10593 (pytorch-CycleGAN-and-pix2pix). Latents are
precomputed but where Stable Diffusion is asked for with its autoencoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from ..builder import Feature, GraphBuilder, Options

LATENT_CHANNELS, LATENT_FACTOR = 4, 8  # of the autoencoder
FREQUENCIES = 256  # width of the sinusoids of a time step or a frame rate


def diffusion(
    b: GraphBuilder,
    widths: Sequence[int] = (320, 640, 1280, 1280),
    attention: Sequence[bool] = (True, True, True, False),
    blocks: int = 2,
    head_dim: int = 64,
    context: int = 1024,
    context_tokens: int = 77,
    text_layers: int = 0,
    autoencoder: int = 0,
) -> None:
    """A denoising step on latents of ``work.image_size`` / ``LATENT_FACTOR``.

    ``attention`` says which levels have transformer blocks; ``text_layers`` > 0 runs that many
    frozen layers of a text encoder ``context`` wide, ``autoencoder`` > 0 the frozen encoder of the
    images, so many channels wide at their size.
    """
    if autoencoder:
        _image_encoder(b, autoencoder)
    time = 4 * widths[0]
    x = Feature(LATENT_CHANNELS, tuple(n // LATENT_FACTOR for n in b.work.image))
    b.input(2 * x.elements + context_tokens * (1 if text_layers else context))
    if text_layers:
        _text_encoder(b, context, context_tokens, text_layers)
    b.elementwise(x, reads=3, writes=2, kernels=6, backward_writes=0)
    for narrow in (widths[0], time):
        b.dense(b.batch_size, narrow, time, "silu")
    x = b.conv(x, widths[0], 3, bias=True, data_gradient=False)
    skips = [x]
    for level, width in enumerate(widths):
        for _ in range(blocks):
            x = _residual(b, x, width, time)
            skips.append(x)
        if attention[level]:
            with b.repeat(2 * blocks + 1):  # those of the way up are equal
                _transformer(b, x, head_dim, context, context_tokens)
        if level < len(widths) - 1:
            x = b.conv(x, width, 3, stride=2, padding=1, bias=True)
            skips.append(x)
    x = _residual(b, x, x.channels, time)
    _transformer(b, x, head_dim, context, context_tokens)
    x = _residual(b, x, x.channels, time)
    for level in reversed(range(len(widths))):
        for _ in range(blocks + 1):
            x = _residual(b, b.join(x, skips.pop()), widths[level], time)
        if level:
            x = b.conv(b.upsample(x, skips[-1].size), x.channels, 3, bias=True)
    _normed(b, x)
    x = b.conv(x, LATENT_CHANNELS, 3, bias=True)
    b.regression_loss(x, kernels=3)


def _image_encoder(b: GraphBuilder, width: int) -> None:
    """Frozen encoder to latents: levels of two residual blocks (diffusers AutoencoderKL)."""
    with b.forward_only():
        b.input(3 * b.work.image[0] * b.work.image[1])
        x = b.conv(Feature(3, b.work.image), width, 3, bias=True)
        for level, times in enumerate((1, 2, 4, 4)):
            if level:
                x = b.conv(x, x.channels, 3, stride=2, padding=1, bias=True)
            for _ in range(2):
                x = _residual(b, x, times * width)
        x = _residual(b, x, x.channels)
        b.norm(x, "group")
        with b.repeat(4):  # query, key, value and what they come to
            b.linear(b.batch_size * x.positions, x.channels, x.channels)
        b.attention(1, x.positions, x.positions, x.channels, flash=b.work.flash_attention)
        x = _residual(b, x, x.channels)
        _normed(b, x)
        b.conv(x, 2 * LATENT_CHANNELS, 3, bias=True)


def _normed(b: GraphBuilder, x: Feature) -> None:
    b.norm(x, "group")
    b.activation(x, "silu")


def _residual(b: GraphBuilder, x: Feature, channels: int, time: int = 0) -> Feature:
    """Two convolutions with the time step, if any, between them, beside a skip."""
    _normed(b, x)
    y = b.conv(x, channels, 3, bias=True)
    if time:
        b.activation(float(b.batch_size * time), "silu")
        b.linear(b.batch_size, time, channels)
        b.add(y)
    _normed(b, y)
    y = b.conv(y, channels, 3, bias=True)
    if x.channels != channels:
        b.conv(x, channels, 1, bias=True)
    b.add(y)
    return y


def _transformer(b: GraphBuilder, x: Feature, head_dim: int, context: int, tokens: int) -> None:
    """Attention to itself and to the text, gated feed-forward, between projections."""
    width, rows, flash = x.channels, b.batch_size * x.positions, b.work.flash_attention
    b.norm(x, "group")
    b.linear(rows, width, width)
    for key_width, keys in ((width, x.positions), (context, tokens)):
        own = keys == x.positions and key_width == width
        b.layer_norm(rows, width)
        b.linear(rows, width, width, bias=False)
        for _ in range(2):
            b.linear(b.batch_size * keys, key_width, width, bias=False, data_gradient=own)
        b.attention(width // head_dim, x.positions, keys, head_dim, flash=flash, dropout=False)
        b.linear(rows, width, width)
        b.add(x)
    b.layer_norm(rows, width)
    b.linear(rows, width, 8 * width)
    b.activation(float(rows * 4 * width), "gelu")
    b.multiply(float(rows * 4 * width))
    b.linear(rows, 4 * width, width)
    b.add(x)
    b.linear(rows, width, width)
    b.add(x)


def _text_encoder(b: GraphBuilder, width: int, tokens: int, layers: int) -> None:
    """Frozen causal transformer (heads of 64, feed-forward of four times the width)."""
    rows = b.batch_size * tokens
    with b.forward_only(), b.repeat(layers):
        b.layer_norm(rows, width)
        b.linear(rows, width, 3 * width)
        b.attention(width // 64, tokens, tokens, 64, dropout=False)
        b.linear(rows, width, width)
        b.layer_norm(rows, width)
        b.dense(rows, width, 4 * width, "gelu")
        b.linear(rows, 4 * width, width)
        b.elementwise(rows * width, reads=2, kernels=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stream:
    """Sizes of the layers of a diffusion transformer.

    Norms have no weights of their own: vectors computed from the time step shift, scale and gate.
    ``context`` is the width of the text, 0 without cross-attention; with it layers are NeMo's: no
    biases, norms of queries and keys, compiled pointwise work around the norms.
    """

    hidden: int
    heads: int
    tokens: int
    context: int = 0
    context_tokens: int = 0


def dit(
    b: GraphBuilder, layers: int, hidden: int, heads: int, patch: int = 2, classes: int = 1000
) -> None:
    """Predicts noise and its variance on latents of ``work.image_size`` / ``LATENT_FACTOR``."""
    x = Feature(LATENT_CHANNELS, tuple(n // LATENT_FACTOR for n in b.work.image))
    b.input(x.elements + 2)
    b.elementwise(x, reads=2, kernels=5, backward_writes=0)
    y = b.conv(x, hidden, patch, stride=patch, padding=0, bias=True, data_gradient=False)
    with b.frozen():
        b.parameters(y.positions * hidden)
    b.elementwise(y, reads=2, backward_writes=0, kernels=2)
    _time_embedding(b, FREQUENCIES, hidden)
    b.embedding(b.batch_size, hidden, classes + 1)
    stream = _Stream(hidden=hidden, heads=heads, tokens=y.positions)
    with b.repeat(layers):
        _layer(b, stream)
    rows = b.batch_size * y.positions
    _modulation(b, stream, 2)
    _modulated_norm(b, stream, rows)
    b.linear(rows, hidden, patch * patch * 2 * LATENT_CHANNELS)
    b.concat(2 * b.batch_size * x.elements)
    b.regression_loss(x, kernels=3)
    b.regression_loss(x, kernels=30)


def video_dit(
    b: GraphBuilder,
    layers: int,
    hidden: int,
    heads: int,
    context: int = 1024,
    context_tokens: int = 512,
    patch_elements: int = 64,
    positions: int = 54400,
) -> None:
    """Denoises ``work.seq_len`` latent patches of ``patch_elements``; cross-attention to text.

    ``positions`` is the size of the frozen table of position embeddings (frames x rows x columns).
    """
    tokens, rows = b.work.tokens, b.batch_size * b.work.tokens
    b.input(tokens * patch_elements + context_tokens * context)
    b.elementwise(rows * patch_elements, reads=2, kernels=6, backward_writes=0)
    b.linear(rows, patch_elements, hidden, data_gradient=False)
    with b.frozen():
        b.embedding(rows, hidden, positions)
    b.elementwise(rows * hidden, reads=2, kernels=2, backward_writes=0)
    _time_embedding(b, hidden, hidden)
    _time_embedding(b, FREQUENCIES, FREQUENCIES)
    b.layer_norm(b.batch_size, hidden, bias=False)
    sizes = {"context": context, "context_tokens": context_tokens}
    stream = _Stream(hidden=hidden, heads=heads, tokens=tokens, **sizes)
    with b.repeat(layers):
        _layer(b, stream)
    b.linear(rows, hidden, patch_elements)
    b.regression_loss(rows * patch_elements, kernels=6)


def _time_embedding(b: GraphBuilder, sinusoids: int, hidden: int) -> None:
    b.elementwise(b.batch_size * sinusoids, kernels=6, backward_writes=0)
    b.linear(b.batch_size, sinusoids, hidden, data_gradient=False)
    b.activation(float(b.batch_size * hidden), "silu")
    b.linear(b.batch_size, hidden, hidden)


def _layer(b: GraphBuilder, stream: _Stream) -> None:
    """Shift, scale and gate for each branch; attention (twice with text) and feed-forward."""
    rows, hidden, bias = b.batch_size * stream.tokens, stream.hidden, not stream.context
    width, text = hidden // b.work.tensor_parallel, b.batch_size * stream.context_tokens
    _modulation(b, stream, 9 if stream.context else 6)
    _modulated_norm(b, stream, rows)
    b.linear(rows, hidden, 3 * width, bias=bias)
    _attend(b, stream, stream.tokens)
    _gated_residual(b, stream, rows)
    if stream.context:
        _modulated_norm(b, stream, rows)
        b.linear(rows, hidden, width, bias=bias)
        b.linear(text, stream.context, 2 * width, bias=bias, data_gradient=False)
        _attend(b, stream, stream.context_tokens)
        _gated_residual(b, stream, rows)
    _modulated_norm(b, stream, rows)
    b.linear(rows, hidden, 4 * width, bias=bias)
    b.activation(rows * 4 * width, "gelu")
    b.linear(rows, 4 * width, hidden, bias=bias)
    _gated_residual(b, stream, rows)


def _attend(b: GraphBuilder, stream: _Stream, keys: int) -> None:
    share, flash = b.work.tensor_parallel, b.work.flash_attention
    rows, width = b.batch_size * stream.tokens, stream.hidden // share
    heads, head_dim = stream.heads // share, stream.hidden // stream.heads
    if stream.context:
        for side in (stream.tokens, keys):
            b.layer_norm(b.batch_size * side * heads, head_dim, bias=False)
    if not flash:
        b.concat(b.batch_size * (stream.tokens + 2 * keys) * width)
    b.attention(heads, stream.tokens, keys, head_dim, flash=flash, dropout=False)
    b.concat(rows * width)
    b.linear(rows, width, stream.hidden, bias=not stream.context)


def _modulation(b: GraphBuilder, stream: _Stream, vectors: int) -> None:
    """Vectors for a layer, of each sample, from its time step."""
    hidden, share = stream.hidden, b.work.tensor_parallel
    b.activation(float(b.batch_size * hidden), "silu")
    b.linear(b.batch_size, hidden, vectors * hidden // share, bias=not stream.context)


def _modulated_norm(b: GraphBuilder, stream: _Stream, rows: int) -> None:
    """Layer norm without weights, then scale and shift; their gradients are sums over a sample."""
    b.layer_norm(rows, stream.hidden, affine=False, sums=2 if stream.context else 1)
    if not stream.context:
        b.chain(rows * stream.hidden, (2, 2, 3), (5, 2, 4))


def _gated_residual(b: GraphBuilder, stream: _Stream, rows: int) -> None:
    both_ways = ((2, 1, 1), (2, 1, 2)) if stream.context else ((3, 2, 2), (4, 2, 3))
    b.chain(float(rows * stream.hidden), *both_ways)


def cyclegan(b: GraphBuilder, width: int = 64, residual_blocks: int = 9) -> None:
    """Two residual generators and two patch discriminators in one step, norms without weights.

    A sample is a pair of images. The generators run six times (translation, reconstruction and
    identity, both ways); in their update the discriminators pass gradients on without learning,
    then learn from real and translated images.
    """
    image = Feature(3, b.work.image)

    def finish(x: Feature) -> None:
        b.norm(x, "instance", affine=False)
        b.activation(x)

    def pad(x: Feature, pixels: int) -> None:
        b.concat(Feature(x.channels, tuple(n + pixels for n in x.size)))

    def generate(*, shared: bool, chained: bool) -> None:
        """``chained``: the input is another generator's output and wants a gradient."""
        layer: Options = {"bias": True, "shared": shared}
        pad(image, 6)
        x = b.conv(image, width, 7, data_gradient=chained, **layer)
        finish(x)
        for factor in (2, 4):
            x = b.conv(x, width * factor, 3, stride=2, padding=1, **layer)
            finish(x)
        with b.repeat(residual_blocks):
            for _ in range(2):
                pad(x, 2)
                b.conv(x, x.channels, 3, **layer)
                b.norm(x, "instance", affine=False)
            b.activation(x)
            b.add(x)
        enlarged: Options = {"stride": 2, "padding": 1, "output_padding": 1, **layer}
        for factor in (2, 1):
            x = b.conv_transpose(x, width * factor, 3, **enlarged)
            finish(x)
        b.activation(b.conv(x, 3, 7, **layer))

    def discriminate(*, shared: bool, image_gradient: bool) -> Feature:
        """The 70x70 patch classifier: 4x4 convolutions, three of them strided."""
        layer: Options = {"padding": 1, "bias": True, "shared": shared}
        x = image
        for position, (factor, stride) in enumerate(((1, 2), (2, 2), (4, 2), (8, 1))):
            gradient = position > 0 or image_gradient
            x = b.conv(x, width * factor, 4, stride=stride, data_gradient=gradient, **layer)
            if position:
                b.norm(x, "instance", affine=False)
            b.activation(x)
        return b.conv(x, 1, 4, **layer)

    b.input(2 * image.elements)
    with b.repeat(2):
        for use in range(3):
            generate(shared=use > 0, chained=use == 1)
        b.regression_loss(image, kernels=4)
        b.regression_loss(image, kernels=4)
        for use in range(3):
            with b.frozen() if use == 0 else nullcontext():
                x = discriminate(shared=use != 1, image_gradient=use == 0)
            b.regression_loss(x, kernels=4)
