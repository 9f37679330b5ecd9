"""T5, T5 v1.1, mT5 and Switch Transformers.

Raffel et al. arXiv 1910.10683; Shazeer arXiv 2002.05202 (gated GELU of v1.1); Xue et al.
arXiv 2010.11934; Fedus et al. arXiv 2101.03961. One sample is ``work.tokens`` encoder tokens and
``target_len`` decoder tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..builder import GraphBuilder
from . import Workload, family
from .moe import Mixture, moe_feed_forward
from .transformer import (
    Block,
    cross_attention,
    feed_forward,
    language_head,
    norm,
    self_attention,
    vocab_share,
)

BUCKETS = 32  # relative position buckets of a stack, shared by its layers


@dataclass(frozen=True, slots=True)
class Stack:
    """One side: its depth, how many of its layers are mixtures, tokens, memory tokens."""

    layers: int
    sparse_layers: int
    seq_len: int
    memory_len: int = 0


@family("t5")
def t5(
    b: GraphBuilder,
    work: Workload,
    *,
    hidden: int,
    heads: int,
    ffn: int,
    head_dim: int = 64,
    layers: int | str = 0,
    encoder_layers: int = 0,
    decoder_layers: int = 0,
    target_len: int = 128,
    vocab: int = 32128,
    vocab_divisor: int = 1,
    activation: str = "gelu",
    tied: bool = False,
    bias: bool = False,
    layer_norm: bool = False,
    max_position: int = 0,
    experts: int = 0,
    expert_step: int = 2,
) -> None:
    """An encoder-decoder; ``layers`` (24, or ``24+24``) serves a stack without its own depth.

    ``activation="geglu"`` is gated. ``max_position`` gives learned positions in the place of
    relative ones, ``layer_norm`` and ``bias`` layers of GPT's kind (Megatron-LM). With ``experts``
    every ``expert_step``-th layer is a top-1 mixture.
    """
    block = Block.of(
        hidden,
        heads,
        ffn,
        head_dim=head_dim,
        bias=bias,
        rms_norm=not layer_norm,
        activation="gelu_new" if activation == "geglu" else activation,
        gated=activation == "geglu",
        inner_dropout=not layer_norm,
        joint_projections=layer_norm,
        work=work,
    )
    mixture = Mixture(experts, 1, block.ffn) if experts else None
    table = vocab_share(vocab, work.tensor_parallel, vocab_divisor)
    source, target = work.tokens, target_len
    b.input(source + 2 * target)
    first, _, second = str(layers).partition("+")
    sides = (
        (encoder_layers or int(first), source, 0),
        (decoder_layers or int(second or first), target, source),
    )
    for depth, seq, memory in sides:
        sparse = depth // expert_step if experts else 0
        b.embedding(b.batch_size * seq, hidden, table, shared=bool(memory))
        _positions(b, block, seq, max_position, shared=bool(memory))
        b.dropout(b.batch_size * seq * hidden)
        _stack(b, block, Stack(depth, sparse, seq, memory), mixture)
    language_head(b, b.batch_size * target, hidden, table, tied=tied, bias=layer_norm)


def _positions(
    b: GraphBuilder, block: Block, seq_len: int, max_position: int, *, shared: bool
) -> None:
    """Learned positions shared by both stacks, or the relative bias of one stack."""
    if max_position:
        b.embedding(seq_len, block.hidden, max_position, shared=shared)
        b.elementwise(b.batch_size * seq_len * block.hidden, reads=2, backward_writes=0)
    else:
        b.embedding(seq_len * seq_len, block.heads, BUCKETS)


def _stack(b: GraphBuilder, block: Block, stack: Stack, mixture: Mixture | None) -> None:
    rows = b.batch_size * stack.seq_len
    for times, sparse in (
        (stack.layers - stack.sparse_layers, None),
        (stack.sparse_layers, mixture),
    ):
        if not times:
            continue
        with b.repeat(times):
            self_attention(b, block, stack.seq_len, causal=bool(stack.memory_len))
            if stack.memory_len:
                cross_attention(b, block, stack.seq_len, stack.memory_len)
            if sparse:
                moe_feed_forward(b, block, sparse, rows)
            else:
                feed_forward(b, block, rows)
    norm(b, block, rows)
