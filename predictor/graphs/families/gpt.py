"""Decoder-only language models: GPT-2/3, OPT, BLOOM, Llama, Qwen, Gemma, Phi, Mixtral, DeepSeek.

Also hybrids of Mamba-2 (Dao and Gu, arXiv 2405.21060, chunked state-space duality), gated delta
rules (Yang et al. arXiv 2412.06464), attention, feed-forward and mixture layers. Radford et al.
2019 (GPT-2); Brown et al. arXiv 2005.14165; Touvron et al. arXiv 2307.09288; Shoeybi et al. arXiv
1909.08053 for the split over GPUs. Argument names are those of Megatron-LM.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any

from ...errors import GraphError
from ..builder import Feature, GraphBuilder
from . import takes
from .transformer import (
    Block,
    Habits,
    Mixture,
    dense_layers,
    feed_forward,
    language_head,
    moe_feed_forward,
    residual,
    self_attention,
    soft_cap,
    vocab_share,
)
from .transformer import norm as normalise


@takes(Habits)
def gpt(
    b: GraphBuilder,
    layers: int,
    hidden: int,
    heads: int,
    ffn: int | None = None,
    vocab: int = 50257,
    vocab_divisor: int = 1,
    max_position: int = 0,
    head_bias: bool = False,
    norm: str = "layernorm",
    shared_norm: bool = False,
    swiglu: bool = False,
    pos_emb: str = "learned",
    untied_embeddings: bool = False,
    embedding_norm: bool = False,
    experts: int = 0,
    topk: int = 2,
    moe_ffn: int | None = None,
    shared_ffn: int = 0,
    moe_layer_freq: str | int = 1,
    router_bias: bool = False,
    mtp_layers: int = 0,
    causal: bool = True,
    **habits: Any,
) -> None:
    """A language model on ``work.tokens`` tokens; the loss is taken at every position.

    ``norm`` is ``layernorm`` or ``RMSNorm``, ``pos_emb`` ``learned``, ``rope`` or ``alibi``;
    ``shared_norm`` is one norm for both branches. ``habits`` are fields of ``transformer.Habits``;
    every other layer has a ``window``.
    """
    width, rms = ffn or 4 * hidden, norm.lower().startswith("rms")
    habits |= {"rms_norm": rms, "gated": swiglu, "rotary": pos_emb == "rope"}
    block = Block.of(hidden, heads, width, b.work, **habits)
    seq, rows = b.work.tokens, b.batch_size * b.work.tokens

    def layer(block: Block, *, sparse: bool) -> None:
        """Attention, then a dense or sparse feed-forward layer."""
        self_attention(b, block, seq, causal=causal)
        if sparse:
            moe_feed_forward(b, block, mixture, rows)
        else:
            feed_forward(b, replace(block, pre_norm=False) if shared_norm else block, rows)

    mixture = Mixture(experts, topk, moe_ffn or width, shared_ffn, router_bias, work=b.work)
    table = vocab_share(vocab, b.work.tensor_parallel, vocab_divisor)
    positions = max(max_position, seq) if pos_emb == "learned" else 0
    b.input(2 * seq)
    embed(b, block, seq, table, positions, embedding_norm)
    dense = dense_layers(layers, moe_layer_freq) if experts else layers
    everywhere = replace(block, window=0)
    for times, sparse in ((dense, False), (layers - dense, True)):
        windowed = times // 2 if block.window else 0
        for each, kind in ((windowed, block), (times - windowed, everywhere)):
            with b.repeat(each):
                layer(kind, sparse=sparse)
    head(b, block, seq, table, tied=not untied_embeddings, bias=head_bias)
    for _ in range(mtp_layers):  # multi-token prediction (arXiv 2412.19437): embedding and state
        b.embedding(rows, hidden, table, shared=True)
        normalise(b, block, rows)
        normalise(b, block, rows)
        b.concat(2 * rows * hidden)
        b.linear(rows, 2 * hidden, hidden, bias=False)
        layer(block, sparse=experts > 0)
        head(b, block, seq, table, tied=True)


def embed(
    b: GraphBuilder, block: Block, seq_len: int, vocab: int, positions: int, normed: bool
) -> None:
    """Token and learned position embeddings, with dropout or a norm where the model has them."""
    rows = b.batch_size * seq_len
    b.embedding(rows, block.hidden, vocab)
    if positions:
        b.embedding(seq_len, block.hidden, positions)
        b.elementwise(rows * block.hidden, reads=2, backward_writes=0)
    if normed:
        normalise(b, block, rows)
    if block.dropout:
        b.dropout(ceil(rows / block.norm_shares) * block.hidden)


def head(
    b: GraphBuilder, block: Block, seq_len: int, vocab: int, *, tied: bool, bias: bool = False
) -> None:
    """Last norm, vocabulary GEMM and loss at every position."""
    rows = b.batch_size * seq_len
    normalise(b, block, rows)
    language_head(b, rows, block.hidden, vocab, tied=tied, bias=bias)
    if block.softcap:
        soft_cap(b, rows * vocab)


@takes(Habits)
def mamba(
    b: GraphBuilder,
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
    chunk: int = 128,
    experts: int = 8,
    topk: int = 2,
    moe_ffn: int | None = None,
    shared_ffn: int = 0,
    latent: int = 0,
    untied_embeddings: bool = False,
    **habits: Any,
) -> None:
    """A causal language model; ``|`` in the pattern separates pipeline stages.

    ``mamba_heads`` default to what fills twice the width; ``latent`` is that of experts; ``habits``
    are fields of ``transformer.Habits``. Raises GraphError for a letter that means no layer.
    """
    split, seq, width = b.work.tensor_parallel, b.work.tokens, ffn or 4 * hidden
    habits = {"bias": False, "dropout": False, **habits}
    block = Block.of(hidden, heads, width, b.work, rms_norm=True, **habits)
    mixture = Mixture(experts, topk, moe_ffn or width, shared_ffn, latent=latent, work=b.work)
    inner = (mamba_heads * mamba_head_dim or 2 * hidden) // split
    own_heads, rows = inner // mamba_head_dim, b.batch_size * seq

    def mix(*, delta: bool) -> None:
        """Norm, input projection, causal depthwise convolution, scan, gated norm, output."""
        mixed, width = inner + 2 * groups * state, inner // own_heads
        normalise(b, block, rows)
        b.linear(rows, hidden, inner + mixed + own_heads * (1 + delta), bias=False)
        with b.inside("selective_scan"):
            x, kernel = Feature(mixed, (seq,)), 4
            b.conv(x, mixed, kernel, padding=(kernel - 1,), groups=mixed, bias=not delta)
            b.activation(rows * mixed, "silu")
            b.parameters((3 - delta) * own_heads, 3 - delta)
            length = min(chunk, seq)  # scores and outputs inside a chunk, states between chunks
            every = b.batch_size * ceil(seq / length) * own_heads
            b.elementwise(rows * own_heads, kernels=2, reads=2, writes=2)
            alike = every if delta else every // own_heads * groups
            b.batched_matmul(alike, length, length, state)
            b.batched_matmul(every, length, width, length)
            b.batched_matmul(every, width, state, length)
            b.elementwise(every * width * state)
            b.batched_matmul(every, length, width, state)
            # what a key recalls is taken off its value: within the chunk, then of those before
            within = ((length, state), (state, length), (width, length), (width, state))
            for out, summed in within if delta else ():
                b.batched_matmul(every, length, out, summed)
            b.multiply(rows * inner)
        b.layer_norm(*((rows * own_heads, width) if delta else (rows, inner)), bias=False)
        b.linear(rows, inner, hidden, bias=False)
        residual(b, block, rows)

    table = vocab_share(vocab, split, vocab_divisor)
    b.input(2 * seq)
    embed(b, block, seq, table, 0, False)
    kinds = {
        "M": partial(mix, delta=False),
        "G": partial(mix, delta=True),
        "*": partial(self_attention, b, block, seq, causal=True),
        "-": partial(feed_forward, b, block, rows),
        "E": partial(moe_feed_forward, b, block, mixture, rows),
    }
    pattern = hybrid_pattern.replace("|", "")
    if unknown := set(pattern) - kinds.keys():
        raise GraphError(f"hybrid_pattern holds {sorted(unknown)}; known are {', '.join(kinds)}")
    for letter in filter(pattern.count, kinds):
        with b.repeat(pattern.count(letter)):
            kinds[letter]()
    head(b, block, seq, table, tied=not untied_embeddings)
