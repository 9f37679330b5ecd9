"""Mixture-of-experts feed-forward layers: a router sends each token to its best experts.

Fedus et al. arXiv 2101.03961; Jiang et al. arXiv 2401.04088. With experts spread over GPUs each
GPU computes its share of them on the tokens of all: as many rows as without the split.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import ceil

from ...errors import GraphError
from ..builder import GraphBuilder
from .transformer import Block, activate, expand, norm, project, residual

_RUN = re.compile(r"\[([01])\]\*(\d+)")


@dataclass(frozen=True, slots=True)
class Mixture:
    """Experts of one layer: all of them, those a token visits, and their widths on one GPU.

    ``grouped`` products start together. Experts ``latent`` wide work on a projection of the stream
    (LatentMoE of Nemotron 3); 0 on the stream itself.
    """

    experts: int
    topk: int
    ffn: int
    shared_ffn: int = 0
    expert_parallel: int = 1
    grouped: bool = False
    router_bias: bool = False
    latent: int = 0


def moe_feed_forward(b: GraphBuilder, block: Block, mixture: Mixture, rows: int) -> None:
    """Norm, router, experts on ``topk`` copies of each row, shared expert, residual."""
    routed = rows * mixture.topk
    local = max(1, mixture.experts // mixture.expert_parallel)
    inner = replace(block, hidden=mixture.latent or block.hidden, ffn=mixture.ffn)
    copies = routed * inner.hidden
    norm(b, block, rows)
    b.linear(rows, block.hidden, mixture.experts, bias=mixture.router_bias)
    b.softmax(rows, mixture.experts)
    b.elementwise(
        rows * mixture.experts, kernels=6, reads=6, writes=4, backward_reads=3, backward_kernels=3
    )
    b.elementwise(copies, backward_reads=1)
    if mixture.latent:
        b.linear(rows, block.hidden, inner.hidden, bias=False)
    each = ceil(routed / local)
    if mixture.grouped:
        with b.grouped(local):
            project(b, each, inner.hidden, inner.inputs, inner)
        activate(b, inner, routed * inner.ffn)
        with b.grouped(local):
            b.linear(each, inner.ffn, inner.hidden, bias=inner.bias)
    else:
        with b.repeat(local):
            expand(b, inner, each)
    b.elementwise(copies, kernels=2, reads=2, writes=1 + 1 / mixture.topk, backward_reads=2)
    if mixture.latent:
        b.linear(rows, inner.hidden, block.hidden, bias=False)
    if mixture.shared_ffn:
        expand(b, block.with_ffn(mixture.shared_ffn), rows)
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
