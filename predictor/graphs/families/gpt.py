"""Decoder-only language models: GPT-2/3, OPT, BLOOM, Llama, Qwen, Gemma, Phi, Mixtral.

Radford et al. 2019 (GPT-2); Brown et al. arXiv 2005.14165; Touvron et al. arXiv 2307.09288;
Shoeybi et al. arXiv 1909.08053 for the split over GPUs. Argument names are those of Megatron-LM.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from ..builder import GraphBuilder
from . import Workload, family
from .latent_attention import Latent, latent_attention
from .moe import Mixture, dense_layers, moe_feed_forward
from .transformer import Block, feed_forward, language_head, self_attention, soft_cap, vocab_share
from .transformer import norm as normalise


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


@family("gpt")
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
    kv_heads: int | None = None,
    head_dim: int | None = None,
    bias: bool = True,
    qkv_bias: bool | None = None,
    out_bias: bool | None = None,
    head_bias: bool = False,
    norm: str = "layernorm",
    norm_bias: bool = True,
    pre_norm: bool = True,
    post_norm: bool = False,
    shared_norm: bool = False,
    softcap: bool = False,
    activation: str = "gelu",
    swiglu: bool = False,
    pos_emb: str = "learned",
    untied_embeddings: bool = False,
    embedding_norm: bool = False,
    qk_layernorm: bool = False,
    wide_qk_layernorm: bool = False,
    joint_projections: bool = True,
    dropout: bool = True,
    experts: int = 0,
    topk: int = 2,
    moe_ffn: int | None = None,
    shared_ffn: int = 0,
    moe_layer_freq: str | int = 1,
    router_bias: bool = False,
    window: int = 0,
    sinks: bool = False,
    mla: bool = False,
    q_lora_rank: int = 0,
    kv_lora_rank: int = 512,
    qk_head_dim: int = 128,
    qk_rope_dim: int = 64,
    v_head_dim: int = 128,
    mtp_layers: int = 0,
) -> None:
    """A causal language model on ``work.tokens`` tokens; the loss is taken at every position.

    ``norm`` is ``layernorm`` or ``RMSNorm``, ``pos_emb`` ``learned``, ``rope`` or ``alibi``;
    ``qkv_bias`` and ``out_bias`` default to ``bias``; ``shared_norm`` is one norm for both
    branches, ``post_norm`` one behind each, ``wide_qk_layernorm`` one over all heads. Every other
    layer has a ``window``.
    """
    width = ffn or 4 * hidden
    split = work.tensor_parallel
    block = Block.of(
        hidden,
        heads,
        width,
        window=window,
        sinks=sinks,
        kv_heads=kv_heads,
        head_dim=head_dim,
        bias=bias,
        qkv_bias=qkv_bias,
        out_bias=out_bias,
        pre_norm=pre_norm,
        post_norm=post_norm,
        softcap=softcap,
        rms_norm=norm.lower().startswith("rms"),
        norm_bias=norm_bias,
        activation=activation,
        gated=swiglu,
        dropout=dropout,
        rotary=pos_emb == "rope",
        joint_projections=joint_projections,
        work=work,
    )
    latent = Latent(q_lora_rank, kv_lora_rank, qk_head_dim, qk_rope_dim, v_head_dim)
    layer = Layer(
        block,
        work.tokens,
        qk_norm=qk_layernorm,
        wide_qk_norm=wide_qk_layernorm,
        parallel=shared_norm,
        latent=latent if mla else None,
    )
    own, shared = ceil((moe_ffn or width) / split), ceil(shared_ffn / split)
    mixture = Mixture(
        experts, topk, own, shared, work.expert_parallel, work.grouped_experts, router_bias
    )
    rows_of_vocab = vocab_share(vocab, split, vocab_divisor)
    positions = max(max_position, work.tokens) if pos_emb == "learned" else 0
    b.input(2 * work.tokens)
    embed(b, block, work.tokens, rows_of_vocab, positions, embedding_norm)
    stacks(b, layer, mixture, layers, moe_layer_freq)
    head(b, block, work.tokens, rows_of_vocab, tied=not untied_embeddings, bias=head_bias)
    for _ in range(mtp_layers):
        predict_further(b, replace(layer, mixture=mixture if experts else None), rows_of_vocab)


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


def stacks(
    b: GraphBuilder, layer: Layer, mixture: Mixture, layers: int, moe_layer_freq: str | int
) -> None:
    """The dense layers, then those with experts."""
    dense = dense_layers(layers, moe_layer_freq) if mixture.experts else layers
    stack(b, layer, dense)
    stack(b, replace(layer, mixture=mixture), layers - dense)


def stack(b: GraphBuilder, layer: Layer, times: int) -> None:
    """``times`` equal layers."""
    windowed = times // 2 if layer.block.window else 0
    everywhere = replace(layer, block=replace(layer.block, window=0))
    for each, kind in ((windowed, layer), (times - windowed, everywhere)):
        if each:
            with b.repeat(each):
                decoder_layer(b, kind)


def decoder_layer(b: GraphBuilder, layer: Layer) -> None:
    """Attention of the layer's kind, then feed-forward of the layer's kind."""
    block, rows = layer.block, b.batch_size * layer.seq_len
    if layer.latent:
        latent_attention(b, block, layer.latent, layer.seq_len)
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


def predict_further(b: GraphBuilder, layer: Layer, vocab: int) -> None:
    """A multi-token-prediction layer (arXiv 2412.19437): embedding and state joined, one layer."""
    block, rows = layer.block, b.batch_size * layer.seq_len
    b.embedding(rows, block.hidden, vocab, shared=True)
    normalise(b, block, rows)
    normalise(b, block, rows)
    b.concat(2 * rows * block.hidden)
    b.linear(rows, 2 * block.hidden, block.hidden, bias=False)
    decoder_layer(b, layer)
    head(b, block, layer.seq_len, vocab, tied=True)
