"""Hybrids of Mamba-2, attention, feed-forward and mixture layers.

Dao and Gu, arXiv 2405.21060 (chunked state-space duality); layer letters of Megatron-LM's
hybrid-override-pattern: M Mamba-2, * attention, - feed-forward, E mixture of experts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

from ...errors import GraphError
from ..builder import Feature, GraphBuilder
from . import Workload, family
from .gpt import embed, head
from .moe import Mixture, moe_feed_forward
from .transformer import Block, Habits, feed_forward, norm, residual, self_attention, vocab_share


@dataclass(frozen=True, slots=True)
class _Mixer:
    """A Mamba-2 layer ``inner`` wide, with ``groups`` shared B and C of ``state`` channels."""

    inner: int
    heads: int
    groups: int
    state: int
    conv_kernel: int
    chunk: int


@family("mamba", Habits)
def mamba(
    b: GraphBuilder,
    work: Workload,
    *,
    hybrid_pattern: str,
    hidden: int,
    heads: int,
    ffn: int | None = None,
    vocab: int = 50257,
    vocab_divisor: int = 1,
    state: int = 128,
    groups: int = 8,
    mamba_head_dim: int = 64,
    mamba_heads: int = 0,
    expand: int = 2,
    conv_kernel: int = 4,
    chunk: int = 128,
    experts: int = 8,
    topk: int = 2,
    moe_ffn: int | None = None,
    shared_ffn: int = 0,
    latent: int = 0,
    rms_norm: bool = True,
    untied_embeddings: bool = False,
    **habits: Any,
) -> None:
    """A causal language model; ``|`` in the pattern separates pipeline stages.

    ``mamba_heads`` default to what fills ``expand`` times the width; ``latent`` is that of experts;
    ``habits`` are fields of ``transformer.Habits``. Raises GraphError for a letter that means no
    layer.
    """
    split, seq, width = work.tensor_parallel, work.tokens, ffn or 4 * hidden
    habits = {"bias": False, "dropout": False, **habits}
    block = Block.of(hidden, heads, width, work, rms_norm=rms_norm, **habits)
    mixture = Mixture(
        experts, topk, moe_ffn or width, shared_ffn=shared_ffn, latent=latent, work=work
    )
    inner = (mamba_heads * mamba_head_dim or expand * hidden) // split
    mixer = _Mixer(inner, inner // mamba_head_dim, groups, state, conv_kernel, chunk)
    table = vocab_share(vocab, split, vocab_divisor)
    rows = b.batch_size * seq
    b.input(2 * seq)
    embed(b, block, seq, table, 0, False)
    pattern = hybrid_pattern.replace("|", "")
    if unknown := set(pattern) - set("M*-E"):
        raise GraphError(f"hybrid_pattern holds {sorted(unknown)}; known are M, *, - and E")
    for letter in "M*-E":
        times = pattern.count(letter)
        if not times:
            continue
        with b.repeat(times):
            if letter == "M":
                _mix(b, block, seq, mixer)
            elif letter == "*":
                self_attention(b, block, seq, causal=True)
            elif letter == "-":
                feed_forward(b, block, rows)
            else:
                moe_feed_forward(b, block, mixture, rows)
    head(b, block, seq, table, tied=not untied_embeddings)


def _mix(b: GraphBuilder, block: Block, seq_len: int, mixer: _Mixer) -> None:
    """Norm, input projection, causal depthwise convolution, scan, gated norm, output, residual."""
    rows, inner, heads = b.batch_size * seq_len, mixer.inner, mixer.heads
    mixed, kernel = inner + 2 * mixer.groups * mixer.state, mixer.conv_kernel
    norm(b, block, rows)
    b.linear(rows, block.hidden, inner + mixed + heads, bias=False)
    with b.inside("selective_scan"):
        x = Feature(mixed, (seq_len,))
        b.conv(x, mixed, kernel, padding=(kernel - 1,), groups=mixed, bias=True)
        b.activation(rows * mixed, "silu")
        b.parameters(3 * heads, 3)
        _scan(b, seq_len, mixer)
        b.multiply(rows * inner)
    b.layer_norm(rows, inner, bias=False)
    b.linear(rows, inner, block.hidden, bias=False)
    residual(b, block, rows)


def _scan(b: GraphBuilder, seq_len: int, mixer: _Mixer) -> None:
    """Chunked scan: scores and outputs inside a chunk, states between chunks."""
    heads, state, chunk = mixer.heads, mixer.state, min(mixer.chunk, seq_len)
    chunks, width = b.batch_size * ceil(seq_len / chunk), mixer.inner // heads
    b.elementwise(b.batch_size * seq_len * heads, kernels=2, reads=2, writes=2)
    b.batched_matmul(chunks * mixer.groups, chunk, chunk, state)
    b.batched_matmul(chunks * heads, chunk, width, chunk)
    b.batched_matmul(chunks * heads, width, state, chunk)
    b.elementwise(chunks * heads * width * state)
    b.batched_matmul(chunks * heads, chunk, width, state)
