"""Multi-head latent attention: queries, keys and values from low-rank latents.

DeepSeek-V2, arXiv 2405.04434. Keys carry a part without position and a rotary part that all heads
share, so query/key heads are wider than value heads.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..builder import GraphBuilder
from .transformer import Block, norm, residual, rotary, softmax_is_fused


@dataclass(frozen=True, slots=True)
class Latent:
    """Ranks of the latents and head widths; ``q_rank`` 0 projects queries directly."""

    q_rank: int
    kv_rank: int
    qk_head_dim: int
    rope_dim: int
    v_head_dim: int


def latent_attention(b: GraphBuilder, block: Block, latent: Latent, seq_len: int) -> None:
    """Causal attention; ``block.heads`` heads, residual and norm included."""
    rows = b.batch_size * seq_len
    q_dim = latent.qk_head_dim + latent.rope_dim
    norm(b, block, rows)
    if latent.q_rank:
        b.linear(rows, block.hidden, latent.q_rank, bias=False)
        norm(b, block, rows, latent.q_rank)
    b.linear(rows, latent.q_rank or block.hidden, block.heads * q_dim, bias=False)
    b.linear(rows, block.hidden, latent.kv_rank + latent.rope_dim, bias=False)
    norm(b, block, rows, latent.kv_rank)
    up = block.heads * (latent.qk_head_dim + latent.v_head_dim)
    b.linear(rows, latent.kv_rank, up, bias=False)
    rotary(b, block, rows * (block.heads + 1) * latent.rope_dim)
    b.concat(rows * block.heads * q_dim)
    b.concat(rows * block.heads * q_dim)
    _scores(b, block, latent, seq_len)
    b.linear(rows, block.heads * latent.v_head_dim, block.hidden, bias=False)
    residual(b, block, rows)


def _scores(b: GraphBuilder, block: Block, latent: Latent, seq_len: int) -> None:
    q_dim, keys = latent.qk_head_dim + latent.rope_dim, seq_len * block.key_shares
    if block.flash:
        mean = (q_dim + latent.v_head_dim) // 2
        b.attention(block.heads, seq_len, keys, mean, flash=True, causal=True)
        return
    n = b.batch_size * block.heads
    b.batched_matmul(n, seq_len, keys, q_dim)
    if not softmax_is_fused(block, b.batch_size, keys):
        b.elementwise(n * seq_len * keys, reads=1)
        b.elementwise(n * seq_len * keys, backward_writes=0)
    b.softmax(n * seq_len, keys)
    if block.dropout:
        b.dropout(n * seq_len * keys)
    b.batched_matmul(n, seq_len, latent.v_head_dim, keys)
    b.elementwise(n * seq_len * latent.v_head_dim, backward_reads=1)
