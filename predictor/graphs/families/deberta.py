"""DeBERTa v2: disentangled attention over content and bucketed relative positions.

He et al. arXiv 2006.03654; the v2 release shares the content projections with the positions
(``share_att_key``) and adds a convolution beside the first layer.
"""

from __future__ import annotations

from ..builder import Feature, GraphBuilder
from . import Workload, family
from .bert import embed, task_head
from .transformer import Block, feed_forward, norm, residual


@family("deberta")
def deberta(
    b: GraphBuilder,
    work: Workload,
    *,
    layers: int,
    hidden: int,
    heads: int,
    ffn: int,
    vocab: int = 128100,
    position_buckets: int = 256,
    conv_kernel: int = 0,
    head: str = "classification",
    classes: int = 3,
) -> None:
    """Fine-tuning of the encoder with a head as in bert."""
    seq, rows = work.tokens, b.batch_size * work.tokens
    block = Block.of(hidden, heads, ffn, joint_projections=False)
    positions = 2 * position_buckets
    b.input(3 * seq)
    embed(b, block, rows, vocab, 0, 0)
    b.parameters(positions * hidden)
    norm(b, block, positions)
    _layer(b, block, seq, positions)
    if conv_kernel:
        b.conv(Feature(hidden, (seq,)), hidden, conv_kernel, bias=True)
        b.activation(rows * hidden, "gelu")
        residual(b, block, rows)
        norm(b, block, rows)
    with b.repeat(layers - 1):
        _layer(b, block, seq, positions)
    task_head(b, hidden, seq, head, classes)


def _layer(b: GraphBuilder, block: Block, seq_len: int, positions: int) -> None:
    rows, width = b.batch_size * seq_len, block.hidden
    for _ in range(3):
        b.linear(rows, width, width)
        b.elementwise(rows * width, backward_reads=1)
    _disentangled_attention(b, block, seq_len, positions)
    b.elementwise(rows * width, backward_reads=1)
    b.linear(rows, width, width)
    residual(b, block, rows)
    norm(b, block, rows)
    feed_forward(b, block, rows)


def _disentangled_attention(b: GraphBuilder, block: Block, seq_len: int, positions: int) -> None:
    """Content-content, content-position and position-content scores, then the weighted values."""
    heads = b.batch_size * block.heads
    scores = heads * seq_len * seq_len
    b.batched_matmul(heads, seq_len, seq_len, block.head_dim)
    b.elementwise(scores)
    for _ in ("content to position", "position to content"):
        b.linear(positions, block.hidden, block.hidden, shared=True)
        b.elementwise(heads * positions * block.head_dim, backward_reads=1)
        b.batched_matmul(heads, seq_len, positions, block.head_dim)
        b.elementwise(scores, reads=2, backward_reads=2, backward_writes=2)  # gather by distance
        b.add(scores)
    b.elementwise(scores, backward_writes=0)
    b.softmax(heads * seq_len, seq_len)
    b.dropout(scores)
    b.batched_matmul(heads, seq_len, block.head_dim, seq_len)
