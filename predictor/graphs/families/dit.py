"""Diffusion transformers: class-conditioned images (DiT), text-conditioned video (NeMo).

Peebles and Xie, arXiv 2212.09748: norms without weights of their own, shifted, scaled and gated
by vectors computed from the time step. Latents and text embeddings are precomputed.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..builder import Feature, GraphBuilder
from ..operator import Direction, Kind
from . import Workload, family

FREQUENCIES = 256  # width of the sinusoids of a time step or a frame rate


@dataclass(frozen=True, slots=True)
class _Block:
    """Sizes of one layer; ``context`` is the width of the text, 0 without cross-attention.

    ``fused``: compiled pointwise work around the norms, as in NeMo.
    """

    hidden: int
    heads: int
    tokens: int
    context: int
    context_tokens: int
    bias: bool
    qk_norm: bool
    fused: bool
    flash: bool
    share: int


@family("dit")
def dit(
    b: GraphBuilder,
    work: Workload,
    *,
    layers: int,
    hidden: int,
    heads: int,
    patch: int = 2,
    latent_channels: int = 4,
    latent_factor: int = 8,
    classes: int = 1000,
) -> None:
    """Predicts noise and its variance on latents of ``work.image_size`` / ``latent_factor``."""
    x = Feature(latent_channels, tuple(n // latent_factor for n in work.image))
    b.input(x.elements + 2)
    b.elementwise(b.batch_size * x.elements, reads=2, kernels=5, backward_writes=0)
    y = b.conv(x, hidden, patch, stride=patch, padding=0, bias=True, data_gradient=False)
    with b.frozen():
        b.parameters(y.positions * hidden)
    b.elementwise(b.batch_size * y.elements, reads=2, backward_writes=0, kernels=2)
    _time_embedding(b, FREQUENCIES, hidden)
    b.embedding(b.batch_size, hidden, classes + 1)
    block = _Block(
        hidden,
        heads,
        y.positions,
        0,
        0,
        True,
        False,
        False,
        work.flash_attention,
        work.tensor_parallel,
    )
    with b.repeat(layers):
        _layer(b, block)
    rows = b.batch_size * y.positions
    _modulation(b, block, 2)
    _modulated_norm(b, block, rows)
    b.linear(rows, hidden, patch * patch * 2 * latent_channels)
    b.concat(2 * b.batch_size * x.elements)
    b.regression_loss(b.batch_size * x.elements, kernels=3)
    b.regression_loss(b.batch_size * x.elements, kernels=30)


@family("video_dit")
def video_dit(
    b: GraphBuilder,
    work: Workload,
    *,
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
    tokens, rows = work.tokens, b.batch_size * work.tokens
    b.input(tokens * patch_elements + context_tokens * context)
    b.elementwise(rows * patch_elements, reads=2, kernels=6, backward_writes=0)
    b.linear(rows, patch_elements, hidden, data_gradient=False)
    with b.frozen():
        b.embedding(rows, hidden, positions)
    b.elementwise(rows * hidden, reads=2, kernels=2, backward_writes=0)
    _time_embedding(b, hidden, hidden)
    _time_embedding(b, FREQUENCIES, FREQUENCIES)
    b.layer_norm(b.batch_size, hidden, bias=False)
    block = _Block(
        hidden,
        heads,
        tokens,
        context,
        context_tokens,
        False,
        True,
        True,
        work.flash_attention,
        work.tensor_parallel,
    )
    with b.repeat(layers):
        _layer(b, block)
    b.linear(rows, hidden, patch_elements)
    b.regression_loss(rows * patch_elements, kernels=6)


def _time_embedding(b: GraphBuilder, sinusoids: int, hidden: int) -> None:
    b.elementwise(b.batch_size * sinusoids, kernels=6, backward_writes=0)
    b.linear(b.batch_size, sinusoids, hidden, data_gradient=False)
    b.activation(float(b.batch_size * hidden), "silu")
    b.linear(b.batch_size, hidden, hidden)


def _layer(b: GraphBuilder, block: _Block) -> None:
    """Shift, scale and gate for each branch; attention (twice with text) and feed-forward."""
    rows, width = b.batch_size * block.tokens, block.hidden // block.share
    _modulation(b, block, 9 if block.context else 6)
    _modulated_norm(b, block, rows)
    b.linear(rows, block.hidden, 3 * width, bias=block.bias)
    _attend(b, block, block.tokens)
    _gated_residual(b, block, rows)
    if block.context:
        _modulated_norm(b, block, rows)
        b.linear(rows, block.hidden, width, bias=block.bias)
        b.linear(
            b.batch_size * block.context_tokens,
            block.context,
            2 * width,
            bias=block.bias,
            data_gradient=False,
        )
        _attend(b, block, block.context_tokens)
        _gated_residual(b, block, rows)
    _modulated_norm(b, block, rows)
    b.linear(rows, block.hidden, 4 * width, bias=block.bias)
    b.activation(rows * 4 * width, "gelu")
    b.linear(rows, 4 * width, block.hidden, bias=block.bias)
    _gated_residual(b, block, rows)


def _attend(b: GraphBuilder, block: _Block, keys: int) -> None:
    rows, width = b.batch_size * block.tokens, block.hidden // block.share
    heads, head_dim = block.heads // block.share, block.hidden // block.heads
    if block.qk_norm:
        for side in (block.tokens, keys):
            b.layer_norm(b.batch_size * side * heads, head_dim, bias=False)
    if not block.flash:
        b.concat(b.batch_size * (block.tokens + 2 * keys) * width)
    b.attention(heads, block.tokens, keys, head_dim, flash=block.flash, dropout=False)
    b.concat(rows * width)
    b.linear(rows, width, block.hidden, bias=block.bias)


def _modulation(b: GraphBuilder, block: _Block, vectors: int) -> None:
    """Vectors for a layer, of each sample, from its time step."""
    b.activation(float(b.batch_size * block.hidden), "silu")
    b.linear(b.batch_size, block.hidden, vectors * block.hidden // block.share, bias=block.bias)


def _modulated_norm(b: GraphBuilder, block: _Block, rows: int) -> None:
    """Layer norm without weights, then scale and shift; their gradients are sums over a sample."""
    width, kind = block.hidden, Kind.LAYER_NORM
    n, sums = rows * width, 2 if block.fused else 1
    b.emit(kind, Direction.FORWARD, (rows, width), reads=n, writes=n)
    b.emit(kind, Direction.DATA_GRADIENT, (rows, width), reads=3 * n, writes=n, kernels=sums)
    if not block.fused:
        b.elementwise(
            n, reads=2, writes=2, backward_reads=5, backward_writes=2, kernels=3, backward_kernels=4
        )


def _gated_residual(b: GraphBuilder, block: _Block, rows: int) -> None:
    n = float(rows * block.hidden)
    if block.fused:
        b.elementwise(n, reads=2, backward_reads=2, backward_kernels=2)
    else:
        b.elementwise(
            n, reads=3, writes=2, backward_reads=4, backward_writes=2, kernels=2, backward_kernels=3
        )
