"""The parts of transformers: norm, attention, feed-forward, mixture of experts, residual.

Vaswani et al. arXiv 1706.03762; Fedus et al. arXiv 2101.03961; Jiang et al. arXiv 2401.04088;
DeepSeek-V2, arXiv 2405.04434 (latent attention). With ``fused`` the small kernels around the matrix
products (rotary embedding, gating, RMS norm, head layout copies) are one launch each, as in
Megatron-LM, Transformer Engine and Apex; without it they are what eager PyTorch launches. ``flash``
is attention in one operator.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from ...errors import GraphError
from ..builder import GraphBuilder, Options
from ..operator import FUSED_EXPERTS, VOCABULARY, Workload

# What Megatron-LM's kernel of scale, mask and softmax takes (FusedScaleMaskSoftmax): 16-bit scores
# of 16 < keys <= 16384, and a multiple of four matrices of scores.
FUSED_SOFTMAX_KEYS = range(17, 16385)
FUSED_SOFTMAX_MATRICES = 4

WHOLE = Workload(1)
_RUN = re.compile(r"\[([01])\]\*(\d+)")  # of Megatron-LM's moe-layer-freq
# Activations of blocks whose kernel torch names otherwise.
_FUNCTIONS = {"geglu": "gelu", "gelu_new": "gelu", "squared-relu": "relu"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What the author of a layer chose; 0 and None mean as many heads, as wide, as ``bias``.

    ``qkv_bias`` and ``out_bias`` are those of the attention; a ``post_norm`` closes each branch, an
    ``output_gate`` scales each channel of what was attended. Queries see the last ``window`` keys
    (0: all); ``sinks`` are a learned logit for each head.
    ``qk_layernorm`` norms queries and keys head by head, ``wide_qk_layernorm`` over all heads.
    ``mla`` is latent attention, of queries only where they have a rank.
    """

    kv_heads: int | None = None
    head_dim: int | None = None
    bias: bool = True
    qkv_bias: bool | None = None
    out_bias: bool | None = None
    pre_norm: bool = True
    post_norm: bool = False
    softcap: bool = False
    norm_bias: bool = True
    activation: str = "gelu"
    dropout: bool = True
    joint_projections: bool = True
    window: int = 0
    sinks: bool = False
    output_gate: bool = False
    qk_layernorm: bool = False
    wide_qk_layernorm: bool = False
    mla: bool = False
    q_lora_rank: int = 0
    kv_lora_rank: int = 512
    qk_head_dim: int = 128
    qk_rope_dim: int = 64
    v_head_dim: int = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Block(Habits):
    """One transformer layer on one GPU: widths after tensor parallelism, and its habits.

    ``norm_shares`` GPUs divide the tokens of norms and residuals, ``key_shares`` those of the keys.
    """

    hidden: int
    heads: int
    head_dim: int
    ffn: int
    kv_heads: int
    qkv_bias: bool
    out_bias: bool
    rms_norm: bool = False
    gated: bool = False
    inner_dropout: bool = False
    rotary: bool = False
    fused: bool = False
    flash: bool = False
    norm_shares: int = 1
    key_shares: int = 1

    @classmethod
    def of(cls, hidden: int, heads: int, ffn: int, work: Workload = WHOLE, **habits: Any) -> Block:
        """What one GPU has of a layer of these full widths when ``work`` splits and fuses it.

        ``habits`` are other fields, None where they follow from the rest.
        """
        split, bias = work.tensor_parallel, habits.get("bias", True)
        resolved = {
            "head_dim": habits.get("head_dim") or hidden // heads,
            "kv_heads": ceil((habits.get("kv_heads") or heads) / split),
            "norm_bias": habits.get("norm_bias", True) and not habits.get("rms_norm", False),
        }
        for name in ("qkv_bias", "out_bias"):
            resolved[name] = bias if habits.get(name) is None else habits[name]
        return cls(
            **(habits | resolved),
            hidden=hidden,
            heads=ceil(heads / split),
            ffn=ceil(ffn / split),
            fused=work.fused_layers,
            flash=work.flash_attention,
            norm_shares=split if work.sequence_parallel else 1,
            key_shares=work.context_parallel,
        )

    @property
    def attention_width(self) -> int:
        """Width of the queries."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of the keys, and of the values."""
        return self.kv_heads * self.head_dim

    @property
    def qk_dim(self) -> int:
        """Width of a head's queries and keys in latent attention: without position, and rotary."""
        return self.qk_head_dim + self.qk_rope_dim

    @property
    def inputs(self) -> tuple[int, ...]:
        """Widths of the first products of the feed-forward layer: a gated one has two."""
        return (self.ffn, self.ffn) if self.gated else (self.ffn,)


def vocab_share(vocab: int, tensor_parallel: int, divisor: int = 1) -> int:
    """Vocabulary rows on one GPU: padded to a multiple of divisor x GPUs, then divided.

    A split vocabulary is padded to 128 rows a GPU at least, as Megatron-LM does.
    """
    if tensor_parallel > 1:
        divisor = max(divisor, 128)
    step = divisor * tensor_parallel
    return ceil(vocab / step) * step // tensor_parallel


def norm(b: GraphBuilder, block: Block, rows: int, width: int | None = None) -> None:
    """Layer norm or RMS norm; the eager one moves 36 and 92 bytes an element under autograd."""
    if width is None:
        rows, width = ceil(rows / block.norm_shares), block.hidden
    b.layer_norm(rows, width, bias=block.norm_bias)
    if block.rms_norm and not block.fused:
        b.chain(rows * width, (4, 2.5, 7), (9, 7, 14), "spelt_rms_norm")


def residual(b: GraphBuilder, block: Block, rows: int) -> None:
    """Norm behind a branch where there is one, dropout, and addition to the trunk."""
    if block.post_norm:
        norm(b, block, rows)
    rows = ceil(rows / block.norm_shares)
    if block.dropout:
        b.dropout(rows * block.hidden)
    b.add(rows * block.hidden)


def rotary(b: GraphBuilder, block: Block, elements: float) -> None:
    """Rotary embedding of ``elements`` query and key elements (Su et al. arXiv 2104.09864)."""
    if block.fused:
        b.move(elements)
    else:
        b.chain(elements, (5.5, 4.5, 10), (7.5, 6.5, 14), "rotary")


def attend(
    b: GraphBuilder, block: Block, query_len: int, key_len: int, causal: bool = False
) -> None:
    """Attention over projected heads, with the layout copies and the mask of eager code."""
    samples = b.batch_size
    key_len *= block.key_shares
    queries = samples * query_len * block.attention_width
    keys = samples * key_len * block.attention_width
    if not (block.fused or block.flash):
        for elements in (queries, keys, keys):
            b.move(elements)
    one_softmax = softmax_is_fused(block, samples, key_len)
    if not block.flash and not one_softmax:
        b.elementwise(samples * block.heads * query_len * key_len, backward_writes=0)
    if block.softcap and not block.flash:
        soft_cap(b, samples * block.heads * query_len * key_len)
    kind: Options = {"flash": block.flash, "causal": causal, "dropout": block.dropout}
    sizes = (block.heads, query_len, key_len, block.head_dim)
    b.attention(*sizes, fused_softmax=one_softmax, **kind)
    if not block.flash:
        b.move(queries)


def soft_cap(b: GraphBuilder, elements: float) -> None:
    """Division, tanh and product that bound scores or logits (Gemma 2, arXiv 2408.00118)."""
    b.elementwise(elements, reads=3, writes=3, backward_reads=4, backward_writes=3, kernels=3)


def softmax_is_fused(block: Block, samples: int, key_len: int) -> bool:
    """Whether scale, mask and softmax are one kernel for scores of these sizes."""
    whole = samples * block.heads % FUSED_SOFTMAX_MATRICES == 0
    return block.fused and whole and key_len in FUSED_SOFTMAX_KEYS


def project(
    b: GraphBuilder,
    rows: int,
    width: int,
    outputs: tuple[int, ...],
    block: Block,
    bias: bool,
    matrices: int = 1,
) -> None:
    """Several projections of the same rows: one GEMM where the layer joins them."""
    for out in (sum(outputs),) if block.joint_projections else outputs:
        b.linear(rows, width, out, bias=bias, matrices=matrices)


def self_attention(b: GraphBuilder, block: Block, seq_len: int, *, causal: bool = False) -> None:
    """Query, key and value projections, attention, output projection, residual and norms."""
    rows = b.batch_size * seq_len
    if block.pre_norm:
        norm(b, block, rows)
    if block.mla:
        latent_attention(b, block, seq_len)
        return
    outputs = (block.attention_width * (1 + block.output_gate), block.kv_width, block.kv_width)
    project(b, rows, block.hidden, outputs, block, block.qkv_bias)
    if block.rotary:
        rotary(b, block, rows * (block.attention_width + block.kv_width))
    keys = min(seq_len, 2 * block.window or seq_len) if block.flash else seq_len  # half is masked
    attend(b, block, seq_len, keys, causal=causal)
    if block.sinks:
        b.parameters(block.heads)
    if block.output_gate:
        b.activation(rows * block.attention_width, "sigmoid")
        b.multiply(rows * block.attention_width)
    b.linear(rows, block.attention_width, block.hidden, bias=block.out_bias)
    residual(b, block, rows)
    for heads in (block.heads, block.kv_heads):
        if block.qk_layernorm:
            norm(b, block, rows * heads, block.head_dim)
        if block.wide_qk_layernorm:
            norm(b, block, rows, heads * block.head_dim)


def latent_attention(b: GraphBuilder, block: Block, seq_len: int) -> None:
    """Causal attention whose queries, keys and values come from low-rank latents, and residual.

    Keys carry a part without position and a rotary part that all heads share, so query/key
    heads are wider than value heads. Without a rank queries are projected directly.
    """
    rows, heads, rank = b.batch_size * seq_len, block.heads, block.kv_lora_rank
    if block.q_lora_rank:
        b.linear(rows, block.hidden, block.q_lora_rank, bias=False)
        norm(b, block, rows, block.q_lora_rank)
    b.linear(rows, block.q_lora_rank or block.hidden, heads * block.qk_dim, bias=False)
    b.linear(rows, block.hidden, rank + block.qk_rope_dim, bias=False)
    norm(b, block, rows, rank)
    b.linear(rows, rank, heads * (block.qk_head_dim + block.v_head_dim), bias=False)
    rotary(b, block, rows * (heads + 1) * block.qk_rope_dim)
    b.concat(rows * heads * block.qk_dim)
    b.concat(rows * heads * block.qk_dim)
    _latent_scores(b, block, seq_len)
    b.linear(rows, heads * block.v_head_dim, block.hidden, bias=False)
    residual(b, block, rows)


def _latent_scores(b: GraphBuilder, block: Block, seq_len: int) -> None:
    keys, n, wide = seq_len * block.key_shares, b.batch_size * block.heads, block.qk_dim
    if block.flash:
        mean = (wide + block.v_head_dim) // 2
        b.attention(block.heads, seq_len, keys, mean, flash=True, causal=True)
        return
    b.batched_matmul(n, seq_len, keys, wide)
    if not softmax_is_fused(block, b.batch_size, keys):
        b.elementwise(n * seq_len * keys, reads=1)
        b.elementwise(n * seq_len * keys, backward_writes=0)
    b.softmax(n * seq_len, keys)
    if block.dropout:
        b.dropout(n * seq_len * keys)
    b.batched_matmul(n, seq_len, block.v_head_dim, keys)
    b.move(n * seq_len * block.v_head_dim)


def cross_attention(b: GraphBuilder, block: Block, seq_len: int, memory_len: int) -> None:
    """Attention of ``seq_len`` decoder positions over ``memory_len`` encoder outputs."""
    rows, memory = b.batch_size * seq_len, b.batch_size * memory_len
    norm(b, block, rows)
    b.linear(rows, block.hidden, block.attention_width, bias=block.bias)
    project(b, memory, block.hidden, (block.kv_width, block.kv_width), block, block.bias)
    attend(b, block, seq_len, memory_len)
    b.linear(rows, block.attention_width, block.hidden, bias=block.bias)
    residual(b, block, rows)


def activate(b: GraphBuilder, block: Block, elements: float) -> None:
    """The non-linearity of a feed-forward layer, gated or not."""
    if block.activation == "clamped-swiglu":
        b.elementwise(elements, reads=8, writes=7, backward_reads=9, kernels=6)
        return
    if block.activation == "gelu_new" and not block.fused:
        b.chain(elements, (10, 8, 8), (13, 9, 9), "spelt_gelu")
    elif not (block.gated and block.fused):
        b.activation(elements, _FUNCTIONS.get(block.activation, block.activation))
    if block.activation == "squared-relu" and not block.fused:
        b.activation(elements, "square")
    if block.gated:
        b.multiply(elements)


def expand(b: GraphBuilder, block: Block, rows: int) -> None:
    """The two (gated: three) products of a feed-forward layer and its activation."""
    project(b, rows, block.hidden, block.inputs, block, block.bias)
    activate(b, block, rows * block.ffn)
    if block.inner_dropout:
        b.dropout(rows * block.ffn)
    b.linear(rows, block.ffn, block.hidden, bias=block.bias)


def feed_forward(b: GraphBuilder, block: Block, rows: int) -> None:
    """Norm, feed-forward layer, residual."""
    if block.pre_norm:
        norm(b, block, rows)
    expand(b, block, rows)
    residual(b, block, rows)


def language_head(
    b: GraphBuilder, rows: int, hidden: int, vocab: int, *, tied: bool = True, bias: bool = False
) -> None:
    """Vocabulary GEMM, FP32 copy of the logits, cross entropy; tied weights are not counted."""
    with b.inside(VOCABULARY):
        b.linear(rows, hidden, vocab, bias=False, shared=tied)
        if bias:
            b.parameters(vocab)
            b.elementwise(rows * vocab, backward_writes=0)
        b.move(rows * vocab)
    b.cross_entropy(rows, vocab)


@dataclass(frozen=True, slots=True)
class Mixture:
    """Experts of one layer: all of them, those a token visits, and their full widths.

    With experts spread over GPUs each GPU computes its share of them on the tokens of all: as many
    rows as without the split. ``work`` splits the widths, spreads the experts, and starts their
    products together where they are grouped. Experts ``latent`` wide work on a projection of the
    stream (LatentMoE of Nemotron 3); 0 on the stream itself.
    """

    experts: int
    topk: int
    ffn: int
    shared_ffn: int = 0
    router_bias: bool = False
    latent: int = 0
    work: Workload = WHOLE


def moe_feed_forward(b: GraphBuilder, block: Block, mixture: Mixture, rows: int) -> None:
    """Norm, router, experts on ``topk`` copies of each row, shared expert, residual."""
    work, experts = mixture.work, mixture.experts
    local, split = max(1, experts // work.expert_parallel), work.tensor_parallel
    width, each = mixture.latent or block.hidden, work.expert_tensor_parallel
    inner = replace(block, hidden=width, ffn=ceil(mixture.ffn / each))
    own = ceil(rows * each / split)  # GPUs with experts of their own route tokens of their own
    routed = own * mixture.topk
    copies = routed * width
    norm(b, block, rows)
    b.linear(own, block.hidden, experts, bias=mixture.router_bias)
    b.softmax(own, experts)
    b.chain(own * experts, (6, 4, 6), (3, 1, 3))
    b.move(copies)
    if mixture.latent:
        b.linear(own, block.hidden, width, bias=False)
    each = ceil(routed / local)
    if work.fused_experts:
        with b.inside(FUSED_EXPERTS):
            project(b, each, width, inner.inputs, inner, inner.bias, local)
        activate(b, inner, routed * inner.ffn)
        b.linear(each, inner.ffn, width, bias=inner.bias, matrices=local)
    elif work.grouped_experts:
        with b.grouped(local):
            project(b, each, width, inner.inputs, inner, inner.bias)
        activate(b, inner, routed * inner.ffn)
        with b.grouped(local):
            b.linear(each, inner.ffn, width, bias=inner.bias)
        if inner.bias and block.fused:  # Megatron-LM weighs and adds it in FP32, for each expert
            back, launches = {"backward_reads": 11, "backward_writes": 7}, 2 * local + 2
            b.elementwise(copies, reads=7, writes=7, kernels=launches, function="add", **back)
    else:
        with b.repeat(local):
            expand(b, inner, each)
    b.elementwise(copies, kernels=2, reads=2, writes=1 + 1 / mixture.topk, backward_reads=2)
    if mixture.latent:
        b.linear(own, width, block.hidden, bias=False)
    if mixture.shared_ffn:
        expand(b, replace(block, ffn=ceil(mixture.shared_ffn / split)), rows)
        b.add(rows * block.hidden)
    residual(b, block, rows)


def dense_layers(layers: int, pattern: str | int) -> int:
    """How many of ``layers`` have a dense feed-forward layer.

    ``pattern`` is Megatron-LM's moe-layer-freq: every n-th layer is a mixture, or a sum of runs
    such as ``([0]*3+[1]*12)``. Raises GraphError for another text.
    """
    if isinstance(pattern, int) or pattern.isdigit():
        return layers - ceil(layers / max(1, int(pattern)))
    runs = _RUN.findall(pattern)
    if not runs:
        raise GraphError(f"moe_layer_freq={pattern!r} is neither a number nor [0]*n+[1]*m")
    total = sum(int(times) for _, times in runs)
    return round(layers * sum(int(times) for kind, times in runs if kind == "0") / total)
