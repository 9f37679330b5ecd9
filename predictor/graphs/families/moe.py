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
from . import Workload
from .transformer import Block, activate, expand, norm, project, residual

WHOLE = Workload(1)
_RUN = re.compile(r"\[([01])\]\*(\d+)")


@dataclass(frozen=True, slots=True)
class Mixture:
    """Experts of one layer: all of them, those a token visits, and their full widths.

    ``work`` splits the widths, spreads the experts, and starts their products together where they
    are grouped. Experts ``latent`` wide work on a projection of the stream (LatentMoE of Nemotron
    3); 0 on the stream itself.
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
    work, experts, routed = mixture.work, mixture.experts, rows * mixture.topk
    local, split = max(1, experts // work.expert_parallel), work.tensor_parallel
    width = mixture.latent or block.hidden
    inner = replace(block, hidden=width, ffn=ceil(mixture.ffn / split))
    copies = routed * width
    norm(b, block, rows)
    b.linear(rows, block.hidden, experts, bias=mixture.router_bias)
    b.softmax(rows, experts)
    b.chain(rows * experts, (6, 4, 6), (3, 1, 3))
    b.move(copies)
    if mixture.latent:
        b.linear(rows, block.hidden, width, bias=False)
    each = ceil(routed / local)
    if work.grouped_experts:
        with b.grouped(local):
            project(b, each, width, inner.inputs, inner)
        activate(b, inner, routed * inner.ffn)
        with b.grouped(local):
            b.linear(each, inner.ffn, width, bias=inner.bias)
    else:
        with b.repeat(local):
            expand(b, inner, each)
    b.elementwise(copies, kernels=2, reads=2, writes=1 + 1 / mixture.topk, backward_reads=2)
    if mixture.latent:
        b.linear(rows, width, block.hidden, bias=False)
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
