"""Relational graph attention on sampled neighbourhoods.

Busbridge et al. arXiv 1904.05811; Velickovic et al. arXiv 1710.10903. Every layer runs one graph
attention for each relation and sums them; the graph of a batch is sampled hop by hop.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from ..builder import GraphBuilder
from . import Workload, family


@family("rgat")
def rgat(
    b: GraphBuilder,
    work: Workload,
    *,
    hidden: int = 512,
    heads: int = 4,
    fanout: Sequence[int] = (15, 10, 5),
    in_features: int = 1024,
    classes: int = 2983,
    relations: int = 11,
) -> None:
    """One sample is a seed node; its neighbours are taken as distinct, spread over relations."""
    hops = [1, *accumulate(fanout, mul)]  # nodes of each hop around one seed
    b.input(sum(hops) * in_features)
    width = in_features
    for layer in range(len(fanout)):
        reached = hops[: len(hops) - layer]
        sources, targets = b.batch_size * sum(reached), b.batch_size * sum(reached[:-1])
        with b.repeat(relations):
            _attend(b, sources // relations, targets, width, hidden, heads, first=layer == 0)
        b.elementwise(targets * hidden, reads=relations, backward_reads=1, kernels=relations)
        if layer < len(fanout) - 1:
            b.activation(targets * hidden)
            b.dropout(targets * hidden)
        width = hidden
    b.linear(b.batch_size, hidden, classes)
    b.cross_entropy(b.batch_size, classes)


def _attend(
    b: GraphBuilder, edges: int, targets: int, width: int, hidden: int, heads: int, *, first: bool
) -> None:
    """Project sources, score edges, softmax over the edges of a target, weighted sum."""
    b.linear(edges, width, hidden, bias=False, data_gradient=not first)
    b.parameters(3 * hidden, 3)  # two score vectors and a bias
    b.elementwise(edges * hidden, writes=heads / hidden, kernels=4)
    b.softmax(edges, heads)
    b.elementwise(edges * hidden, backward_writes=2, kernels=2)
    b.elementwise(targets * hidden, reads=edges / targets, backward_writes=edges / targets)
