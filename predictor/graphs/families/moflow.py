"""MoFlow: normalising flows for molecules, one over bonds and one over atoms given the bonds.

Zang and Wang, arXiv 2006.10137; sizes of NVIDIA DeepLearningExamples for ZINC-250k.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ..builder import Feature, GraphBuilder
from . import Workload, family


@family("moflow")
def moflow(
    b: GraphBuilder,
    work: Workload,
    *,
    nodes: int = 40,
    node_features: int = 10,
    edge_types: int = 4,
    atom_flows: int = 38,
    atom_graph_width: int = 256,
    atom_linear_widths: Sequence[int] = (512, 64),
    bond_flows: int = 10,
    bond_widths: Sequence[int] = (512, 512),
    squeeze: int = 20,
) -> None:
    """One sample is a molecule padded to ``nodes`` atoms."""
    b.input(nodes * nodes * edge_types + nodes * node_features)
    x = Feature(edge_types * squeeze**2, (nodes // squeeze, nodes // squeeze))
    b.elementwise(2 * b.batch_size * x.elements, reads=1, backward_writes=0, kernels=2)  # noise
    b.elementwise(2 * b.batch_size * x.elements, reads=1, backward_reads=1, kernels=2)  # squeeze
    with b.repeat(bond_flows):
        _bond_flow(b, x, bond_widths)
    with b.repeat(atom_flows):
        _atom_flow(b, nodes, node_features, edge_types, atom_graph_width, atom_linear_widths)
    b.parameters(2, 2)  # learned variance of the two priors
    b.regression_loss(b.batch_size * (x.elements + nodes * node_features), kernels=6)


def _coupling(b: GraphBuilder, elements: float) -> None:
    """Sigmoid, shift and scale, log-determinant, put the halves together."""
    b.elementwise(elements, reads=2, kernels=4, backward_kernels=6)
    b.elementwise(elements, reads=1, writes=0, kernels=2, backward_writes=1)
    b.concat(elements)


def _bond_flow(b: GraphBuilder, x: Feature, widths: Sequence[int]) -> None:
    elements = b.batch_size * x.elements
    b.parameters(2 * x.channels, 2)  # activation normalisation
    b.elementwise(elements, reads=1, kernels=2)
    y = x.with_channels(x.channels // 2)
    for width in widths:
        y = b.conv(y, width, 3, bias=True)
        b.batch_norm(y)
        b.activation(y)
    b.conv(y, x.channels, 3, bias=True)
    _coupling(b, elements)


def _atom_flow(
    b: GraphBuilder,
    nodes: int,
    features: int,
    edge_types: int,
    graph_width: int,
    widths: Sequence[int],
) -> None:
    rows = b.batch_size * nodes
    b.parameters(2 * nodes, 2)
    b.elementwise(rows * features, reads=1, kernels=3)
    b.linear(rows, features, graph_width)
    b.linear(rows, features, graph_width * edge_types)
    b.elementwise(rows * graph_width * edge_types, reads=1, backward_reads=1)
    b.batched_matmul(b.batch_size * edge_types, nodes, graph_width, nodes)
    b.elementwise(  # sum over edge types and the atom itself
        rows * graph_width,
        reads=edge_types + 1,
        backward_reads=1,
        backward_writes=edge_types,
        kernels=2,
    )
    _node_norm(b, nodes, graph_width)
    for width, out in pairwise((graph_width, *widths)):
        b.linear(rows, width, out)
        _node_norm(b, nodes, out)
    b.linear(rows, widths[-1], 2 * features)
    _coupling(b, rows * features)


def _node_norm(b: GraphBuilder, nodes: int, width: int) -> None:
    """Batch norm whose channels are the atoms, then ReLU."""
    x = Feature(nodes, (width,))
    b.elementwise(b.batch_size * x.elements, reads=1, backward_reads=1)  # channels last
    b.batch_norm(x)
    b.activation(x)
