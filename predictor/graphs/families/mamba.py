"""Hybrids of Mamba-2, attention, feed-forward and mixture layers.

Dao and Gu, arXiv 2405.21060 (chunked state-space duality); layer letters of Megatron-LM's
hybrid-override-pattern: M Mamba-2, * attention, - feed-forward, E mixture of experts.
"""

from __future__ import annotations

from math import ceil

from ...errors import GraphError
from ..builder import Feature, GraphBuilder
from . import Workload, family
from .gpt import embed, head
from .moe import Mixture, moe_feed_forward
from .transformer import Block, feed_forward, norm, residual, self_attention, vocab_share


@family("mamba")
def mamba(
    b: GraphBuilder,
    work: Workload,
    *,
    hybrid_pattern: str,
    hidden: int,
    heads: int,
    kv_heads: int | None = None,
    head_dim: int | None = None,
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
    activation: str = "gelu",
    rms_norm: bool = True,
    norm_bias: bool = True,
    untied_embeddings: bool = False,
) -> None:
    """A causal language model; ``|`` in the pattern separates pipeline stages.

    ``mamba_heads`` default to what fills ``expand`` times the width; ``latent`` is that of experts.

    Raises GraphError for a letter that means no layer.
    """
    split, seq = work.tensor_parallel, work.tokens
    block = Block.of(
        hidden,
        heads,
        ffn or 4 * hidden,
        kv_heads=kv_heads,
        head_dim=head_dim,
        bias=False,
        activation=activation,
        dropout=False,
        rms_norm=rms_norm,
        norm_bias=norm_bias,
        work=work,
    )
    own, shared = ceil((moe_ffn or ffn or 4 * hidden) / split), ceil(shared_ffn / split)
    mixture = Mixture(
        experts, topk, own, shared, work.expert_parallel, work.grouped_experts, latent=latent
    )
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
                inner = (mamba_heads * mamba_head_dim or expand * hidden) // split
                mixer(
                    b, block, seq, inner, inner // mamba_head_dim, groups, state, conv_kernel, chunk
                )
            elif letter == "*":
                self_attention(b, block, seq, causal=True)
            elif letter == "-":
                feed_forward(b, block, rows)
            else:
                moe_feed_forward(b, block, mixture, rows)
    head(b, block, seq, table, tied=not untied_embeddings)


def mixer(
    b: GraphBuilder,
    block: Block,
    seq_len: int,
    inner: int,
    heads: int,
    groups: int,
    state: int,
    conv_kernel: int,
    chunk: int,
) -> None:
    """One Mamba-2 layer of ``heads`` heads with ``groups`` shared B and C of ``state`` channels.

    Norm, input projection, causal depthwise convolution, state-space scan, gated norm, output
    projection, residual.
    """
    rows = b.batch_size * seq_len
    mixed = inner + 2 * groups * state
    norm(b, block, rows)
    b.linear(rows, block.hidden, inner + mixed + heads, bias=False)
    with b.inside("selective_scan"):
        b.conv(
            Feature(mixed, (seq_len,)),
            mixed,
            conv_kernel,
            padding=(conv_kernel - 1,),
            groups=mixed,
            bias=True,
        )
        b.activation(rows * mixed, "silu")
        b.parameters(3 * heads, 3)
        _scan(b, seq_len, inner, heads, groups, state, chunk)
        b.multiply(rows * inner)
    b.layer_norm(rows, inner, bias=False)
    b.linear(rows, inner, block.hidden, bias=False)
    residual(b, block, rows)


def _scan(
    b: GraphBuilder, seq_len: int, inner: int, heads: int, groups: int, state: int, chunk: int
) -> None:
    """Chunked scan: scores and outputs inside a chunk, states between chunks."""
    chunk = min(chunk, seq_len)
    chunks = b.batch_size * ceil(seq_len / chunk)
    width = inner // heads
    b.elementwise(b.batch_size * seq_len * heads, kernels=2, reads=2, writes=2)
    b.batched_matmul(chunks * groups, chunk, chunk, state)
    b.batched_matmul(chunks * heads, chunk, width, chunk)
    b.batched_matmul(chunks * heads, width, state, chunk)
    b.elementwise(chunks * heads * width * state)
    b.batched_matmul(chunks * heads, chunk, width, state)
