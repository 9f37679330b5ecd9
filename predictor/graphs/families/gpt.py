"""Decoder-only language models: GPT-2/3, OPT, BLOOM, Llama, Qwen, Gemma, Phi, Mixtral, DeepSeek.

Radford et al. 2019 (GPT-2); Brown et al. arXiv 2005.14165; Touvron et al. arXiv 2307.09288;
DeepSeek-V2, arXiv 2405.04434 (latent attention); Shoeybi et al. arXiv 1909.08053 for the split over
GPUs. Argument names are those of Megatron-LM.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from ..builder import GraphBuilder
from . import Workload, family
from .moe import Mixture, dense_layers, moe_feed_forward
from .transformer import (
    Block,
    Habits,
    feed_forward,
    language_head,
    residual,
    rotary,
    self_attention,
    soft_cap,
    softmax_is_fused,
    vocab_share,
)
from .transformer import norm as normalise


@dataclass(frozen=True, slots=True)
class Latent:
    """Ranks of the latents and head widths; ``q_rank`` 0 projects queries directly.

    Keys carry a part without position and a rotary part that all heads share, so query/key heads
    are wider than value heads.
    """

    q_rank: int
    kv_rank: int
    qk_head_dim: int
    rope_dim: int
    v_head_dim: int

    @property
    def q_dim(self) -> int:
        """Width of a query head."""
        return self.qk_head_dim + self.rope_dim


@dataclass(frozen=True, slots=True)
class Layer:
    """A decoder layer: its block and what replaces attention or feed-forward, where it does."""

    block: Block
    seq_len: int
    latent: Latent | None = None
    mixture: Mixture | None = None
    qk_norm: bool = False
    wide_qk_norm: bool = False
    parallel: bool = False


@family("gpt", Habits)
def gpt(
    b: GraphBuilder,
    work: Workload,
    *,
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
    qk_layernorm: bool = False,
    wide_qk_layernorm: bool = False,
    experts: int = 0,
    topk: int = 2,
    moe_ffn: int | None = None,
    shared_ffn: int = 0,
    moe_layer_freq: str | int = 1,
    router_bias: bool = False,
    mla: bool = False,
    q_lora_rank: int = 0,
    kv_lora_rank: int = 512,
    qk_head_dim: int = 128,
    qk_rope_dim: int = 64,
    v_head_dim: int = 128,
    mtp_layers: int = 0,
    **habits: Any,
) -> None:
    """A causal language model on ``work.tokens`` tokens; the loss is taken at every position.

    ``norm`` is ``layernorm`` or ``RMSNorm``, ``pos_emb`` ``learned``, ``rope`` or ``alibi``;
    ``shared_norm`` is one norm for both branches, ``wide_qk_layernorm`` one over all heads.
    ``habits`` are fields of ``transformer.Habits``; every other layer has a ``window``.
    """
    width, rms = ffn or 4 * hidden, norm.lower().startswith("rms")
    rope = pos_emb == "rope"
    block = Block.of(hidden, heads, width, work, rms_norm=rms, gated=swiglu, rotary=rope, **habits)
    latent = Latent(q_lora_rank, kv_lora_rank, qk_head_dim, qk_rope_dim, v_head_dim)
    layer = Layer(
        block,
        work.tokens,
        qk_norm=qk_layernorm,
        wide_qk_norm=wide_qk_layernorm,
        parallel=shared_norm,
        latent=latent if mla else None,
    )
    mixture = Mixture(experts, topk, moe_ffn or width, shared_ffn, router_bias, work=work)
    sparse = replace(layer, mixture=mixture if experts else None)
    table = vocab_share(vocab, work.tensor_parallel, vocab_divisor)
    positions = max(max_position, work.tokens) if pos_emb == "learned" else 0
    b.input(2 * work.tokens)
    embed(b, block, work.tokens, table, positions, embedding_norm)
    dense = dense_layers(layers, moe_layer_freq) if experts else layers
    _stack(b, layer, dense)
    _stack(b, sparse, layers - dense)
    head(b, block, work.tokens, table, tied=not untied_embeddings, bias=head_bias)
    for _ in range(mtp_layers):
        _predict_further(b, sparse, table)


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


def _stack(b: GraphBuilder, layer: Layer, times: int) -> None:
    """``times`` equal layers; every other one has the window, where there is one."""
    windowed = times // 2 if layer.block.window else 0
    everywhere = replace(layer, block=replace(layer.block, window=0))
    for each, kind in ((windowed, layer), (times - windowed, everywhere)):
        if each:
            with b.repeat(each):
                _decoder_layer(b, kind)


def _decoder_layer(b: GraphBuilder, layer: Layer) -> None:
    """Attention of the layer's kind, then feed-forward of the layer's kind."""
    block, rows = layer.block, b.batch_size * layer.seq_len
    if layer.latent:
        _latent_attention(b, block, layer.latent, layer.seq_len)
    else:
        self_attention(b, block, layer.seq_len, causal=True)
        if layer.qk_norm:
            normalise(b, block, rows * block.heads, block.head_dim)
            normalise(b, block, rows * block.kv_heads, block.head_dim)
        if layer.wide_qk_norm:
            normalise(b, block, rows, block.attention_width)
            normalise(b, block, rows, block.kv_width)
    if layer.mixture:
        moe_feed_forward(b, block, layer.mixture, rows)
    else:
        feed_forward(b, replace(block, pre_norm=False) if layer.parallel else block, rows)


def head(
    b: GraphBuilder, block: Block, seq_len: int, vocab: int, *, tied: bool, bias: bool = False
) -> None:
    """Last norm, vocabulary GEMM and loss at every position."""
    rows = b.batch_size * seq_len
    normalise(b, block, rows)
    language_head(b, rows, block.hidden, vocab, tied=tied, bias=bias)
    if block.softcap:
        soft_cap(b, rows * vocab)


def _predict_further(b: GraphBuilder, layer: Layer, vocab: int) -> None:
    """A multi-token-prediction layer (arXiv 2412.19437): embedding and state joined, one layer."""
    block, rows = layer.block, b.batch_size * layer.seq_len
    b.embedding(rows, block.hidden, vocab, shared=True)
    normalise(b, block, rows)
    normalise(b, block, rows)
    b.concat(2 * rows * block.hidden)
    b.linear(rows, 2 * block.hidden, block.hidden, bias=False)
    _decoder_layer(b, layer)
    head(b, block, layer.seq_len, vocab, tied=True)


def _latent_attention(b: GraphBuilder, block: Block, latent: Latent, seq_len: int) -> None:
    """Queries, keys and values from low-rank latents; residual and norm included."""
    rows, heads = b.batch_size * seq_len, block.heads
    normalise(b, block, rows)
    if latent.q_rank:
        b.linear(rows, block.hidden, latent.q_rank, bias=False)
        normalise(b, block, rows, latent.q_rank)
    b.linear(rows, latent.q_rank or block.hidden, heads * latent.q_dim, bias=False)
    b.linear(rows, block.hidden, latent.kv_rank + latent.rope_dim, bias=False)
    normalise(b, block, rows, latent.kv_rank)
    up = heads * (latent.qk_head_dim + latent.v_head_dim)
    b.linear(rows, latent.kv_rank, up, bias=False)
    rotary(b, block, rows * (heads + 1) * latent.rope_dim)
    b.concat(rows * heads * latent.q_dim)
    b.concat(rows * heads * latent.q_dim)
    _latent_scores(b, block, latent, seq_len)
    b.linear(rows, heads * latent.v_head_dim, block.hidden, bias=False)
    residual(b, block, rows)


def _latent_scores(b: GraphBuilder, block: Block, latent: Latent, seq_len: int) -> None:
    keys, n = seq_len * block.key_shares, b.batch_size * block.heads
    if block.flash:
        mean = (latent.q_dim + latent.v_head_dim) // 2
        b.attention(block.heads, seq_len, keys, mean, flash=True, causal=True)
        return
    b.batched_matmul(n, seq_len, keys, latent.q_dim)
    if not softmax_is_fused(block, b.batch_size, keys):
        b.elementwise(n * seq_len * keys, reads=1)
        b.elementwise(n * seq_len * keys, backward_writes=0)
    b.softmax(n * seq_len, keys)
    if block.dropout:
        b.dropout(n * seq_len * keys)
    b.batched_matmul(n, seq_len, latent.v_head_dim, keys)
    b.move(n * seq_len * latent.v_head_dim)
