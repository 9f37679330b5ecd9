"""Low-rank adapters beside the frozen projections of an attention layer (arXiv 2106.09685)."""

from __future__ import annotations

from ..builder import GraphBuilder
from .transformer import Block, attend, branch_norm, project_heads, residual, rotary


def adapted_attention(b: GraphBuilder, block: Block, rank: int, seq_len: int) -> None:
    """Causal self-attention with adapters at the joint input and the output projection."""
    rows = b.batch_size * seq_len
    with b.frozen():
        branch_norm(b, block, rows)
        project_heads(b, block, rows)
    _adapter(b, rows, block.hidden, rank, block.attention_width + 2 * block.kv_width)
    with b.frozen():
        if block.rotary:
            rotary(b, block, rows * (block.attention_width + block.kv_width))
        attend(b, block, seq_len, seq_len, causal=True)
        b.linear(rows, block.attention_width, block.hidden, bias=block.out_bias)
    _adapter(b, rows, block.attention_width, rank, block.hidden)
    residual(b, block, rows)


def _adapter(b: GraphBuilder, rows: int, width: int, rank: int, out: int) -> None:
    b.dropout(rows * width)
    b.linear(rows, width, rank, bias=False)
    b.linear(rows, rank, out, bias=False)
    b.elementwise(rows * out, backward_reads=1)
    b.add(rows * out)
