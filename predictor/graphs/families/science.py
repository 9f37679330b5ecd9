"""Molecules, graphs and time series: MoFlow, SE(3)-transformer, R-GAT, temporal fusion transformer.

Zang and Wang, arXiv 2006.10137; Fuchs et al. arXiv 2006.10503; Busbridge et al. arXiv 1904.05811;
Velickovic et al. arXiv 1710.10903; Lim et al. arXiv 1912.09363. Sizes and layer orders of NVIDIA
DeepLearningExamples, R-GAT's of MLPerf.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import mul

from ..builder import Feature, GraphBuilder


def moflow(
    b: GraphBuilder,
    nodes: int = 40,
    node_features: int = 10,
    atom_flows: int = 38,
    bond_flows: int = 10,
) -> None:
    """Normalising flows for molecules, one over bonds and one over atoms given the bonds.

    One sample is a molecule padded to ``nodes`` atoms with four types of bonds.
    """
    squeeze, types, graph_width, rows = 20, 4, 256, b.batch_size * nodes

    def coupling(elements: float) -> None:
        """Sigmoid, shift and scale, log-determinant, put the halves together."""
        b.elementwise(elements, reads=2, kernels=4, backward_kernels=6)
        b.elementwise(elements, reads=1, writes=0, kernels=2, backward_writes=1)
        b.concat(elements)

    def node_norm(width: int) -> None:
        """Batch norm whose channels are the atoms, then ReLU."""
        x = Feature(nodes, (width,))
        b.move(x)  # channels last
        b.norm(x)
        b.activation(x)

    def atom_flow() -> None:
        b.parameters(2 * nodes, 2)
        b.elementwise(rows * node_features, reads=1, kernels=3)
        b.linear(rows, node_features, graph_width)
        b.linear(rows, node_features, graph_width * types)
        b.move(rows * graph_width * types)
        b.batched_matmul(b.batch_size * types, nodes, graph_width, nodes)
        # sum over edge types and the atom itself
        b.chain(rows * graph_width, (types + 1, 1, 2), (1, types, 2))
        node_norm(graph_width)
        for width, out in pairwise((graph_width, 512, 64)):
            b.linear(rows, width, out)
            node_norm(out)
        b.linear(rows, 64, 2 * node_features)
        coupling(rows * node_features)

    b.input(nodes * nodes * 4 + nodes * node_features)
    x = Feature(4 * squeeze**2, (nodes // squeeze, nodes // squeeze))
    elements = b.batch_size * x.elements
    b.elementwise(2 * elements, reads=1, backward_writes=0, kernels=2)  # noise
    b.elementwise(2 * elements, reads=1, backward_reads=1, kernels=2)  # squeeze
    with b.repeat(bond_flows):
        b.parameters(2 * x.channels, 2)  # activation normalisation
        b.elementwise(elements, reads=1, kernels=2)
        y = x.with_channels(x.channels // 2)
        for width in (512, 512):
            y = b.conv_norm(y, width, 3, bias=True)
        b.conv(y, x.channels, 3, bias=True)
        coupling(elements)
    with b.repeat(atom_flows):
        atom_flow()
    b.parameters(2, 2)  # learned variance of the two priors
    b.regression_loss(b.batch_size * (x.elements + nodes * node_features), kernels=6)


def se3(
    b: GraphBuilder,
    layers: int = 7,
    degrees: int = 4,
    channels: int = 32,
    heads: int = 8,
    nodes: float = 18.0,
    edges: float = 37.3,
) -> None:
    """Equivariant attention on molecular graphs with fused tensor-field convolutions.

    One sample is a molecule of ``nodes`` atoms and ``edges`` directed bonds on average.
    """
    atoms, bonds = round(b.batch_size * nodes), round(b.batch_size * edges)
    node_features, edge_features = 6, 5
    dims = degrees**2  # 1 + 3 + 5 + ...
    values = channels // 2

    def convolve(width: int, out: int, frequencies: int, dims_in: int, dims_out: int) -> None:
        """Radial network of every bond, basis times features, weights times that."""
        radial = 32
        for inputs in (edge_features, radial):
            b.linear(bonds, inputs, radial)
            b.layer_norm(bonds, radial)
            b.activation(bonds * radial)
        b.linear(bonds, radial, frequencies * width * out, bias=False)
        if dims_in > 1:
            b.batched_matmul(bonds, width, frequencies * dims_out, dims_in)
        b.batched_matmul(bonds, out, dims_out, width * frequencies)

    def project(width: int, out: int, extra: int = 0) -> None:
        """A weight matrix for each degree; ``extra`` channels join at degree zero only."""
        for degree in range(degrees):
            inputs = width + extra if degree == 0 else width
            b.concat(atoms * inputs * (2 * degree + 1))
            b.linear(atoms * (2 * degree + 1), inputs, out, bias=False)

    def attend(keys: int) -> None:
        """Scores on bonds, softmax over the bonds of an atom, weighted sum."""
        b.elementwise(bonds * values * keys, reads=2, writes=1 / keys, backward_writes=2, kernels=3)
        b.softmax(bonds, heads)
        b.elementwise(bonds * values * dims, reads=1, backward_writes=2, kernels=2)
        b.elementwise(atoms * values * dims, reads=bonds / atoms, backward_writes=bonds / atoms)

    def norm() -> None:
        """Lengths of the features of every degree, group norm and ReLU of them, rescaling."""
        rows, kernels = atoms * degrees, 4 * degrees
        b.elementwise(atoms * channels * dims, kernels=kernels, backward_kernels=6 * degrees)
        b.layer_norm(rows, channels)
        b.parameters(2 * channels * (degrees - 1))
        b.activation(rows * channels)

    b.input(nodes * (node_features + 3) + edges * (edge_features + dims * dims))
    for degree in range(degrees):
        convolve(node_features, values if degree else 2 * values, 1, 1, 2 * degree + 1)
    attend(1)
    b.linear(atoms, node_features, values, bias=False)
    project(values, channels, node_features)
    frequencies = sum(2 * min(i, j) + 1 for i in range(degrees) for j in range(degrees))
    with b.repeat(layers - 1):
        norm()
        b.elementwise(bonds * channels * dims, reads=1, kernels=degrees + 1)  # gather, join
        convolve(channels, 2 * values, frequencies, dims, dims)
        project(channels, values)
        attend(dims)
        project(values + channels, channels)
    norm()
    pooled = channels * degrees
    convolve(channels, pooled, degrees, dims, 1)
    b.linear(atoms, channels, pooled, bias=False)
    b.elementwise(atoms * pooled, reads=bonds / atoms, kernels=3)  # sum of edges, maximum of atoms
    b.dense(b.batch_size, pooled, pooled)
    b.linear(b.batch_size, pooled, 1)
    b.regression_loss(b.batch_size)


def rgat(
    b: GraphBuilder,
    hidden: int = 512,
    heads: int = 4,
    fanout: Sequence[int] = (15, 10, 5),
    in_features: int = 1024,
    classes: int = 2983,
    relations: int = 11,
) -> None:
    """One graph attention a layer for each relation, summed, on neighbourhoods sampled hop by hop.

    One sample is a seed node; its neighbours are taken as distinct, spread over relations.
    """
    hops = [1, *accumulate(fanout, mul)]  # nodes of each hop around one seed
    b.input(sum(hops) * in_features)
    width = in_features
    for layer in range(len(fanout)):
        reached = hops[: len(hops) - layer]
        targets = b.batch_size * sum(reached[:-1])
        edges = b.batch_size * sum(reached) // relations
        with b.repeat(relations):
            # project sources, score edges, softmax over the edges of a target, weighted sum
            b.linear(edges, width, hidden, bias=False, data_gradient=layer > 0)
            b.parameters(3 * hidden, 3)  # two score vectors and a bias
            b.elementwise(edges * hidden, writes=heads / hidden, kernels=4)
            b.softmax(edges, heads)
            b.elementwise(edges * hidden, backward_writes=2, kernels=2)
            share = edges / targets
            b.elementwise(targets * hidden, reads=share, backward_writes=share)
        b.elementwise(targets * hidden, reads=relations, backward_reads=1, kernels=relations)
        if layer < len(fanout) - 1:
            b.activation(targets * hidden)
            b.dropout(targets * hidden)
        width = hidden
    b.linear(b.batch_size, hidden, classes)
    b.cross_entropy(b.batch_size, classes)


def tft(
    b: GraphBuilder,
    static_vocab: int,
    hidden: int = 128,
    heads: int = 4,
    encoder_fraction: float = 0.875,
    known_inputs: int = 3,
    targets: int = 1,
) -> None:
    """Variable selection, LSTM, interpretable attention, three quantiles.

    One sample is a window of ``work.tokens`` time steps of one series; ``encoder_fraction`` of the
    window is history, the rest is the horizon.
    """
    steps, batch = b.work.tokens, b.batch_size
    past = round(steps * encoder_fraction)
    inputs, horizon = known_inputs + targets, steps - past
    b.input(steps * (inputs + 1))
    b.embedding(batch, hidden, static_vocab)
    b.parameters(2 * inputs * hidden, 4)
    b.elementwise(batch * steps * inputs * hidden, kernels=2, backward_reads=2)
    _select(b, batch, hidden, 1)
    b.parameters(hidden * hidden)  # declared, never given a context
    with b.repeat(4):
        _gated_residual(b, batch, hidden)
    for length, variables in ((past, inputs), (horizon, known_inputs)):
        _select(b, batch * length, hidden, variables, told=batch)
        b.rnn(length, hidden, hidden)
    rows, out = batch * steps, batch * horizon
    b.concat(2 * rows * hidden)
    _gate(b, rows, hidden)
    _gated_residual(b, rows, hidden, told=batch)
    _mean_attention(b, hidden, heads)
    _gate(b, out, hidden)
    _gated_residual(b, out, hidden)
    _gate(b, out, hidden)
    b.linear(out, hidden, 3)
    b.regression_loss(out * 3, kernels=8)


def _glu(b: GraphBuilder, rows: int, hidden: int, out: int) -> None:
    b.linear(rows, hidden, 2 * out)
    b.elementwise(rows * out, reads=2, backward_reads=3, backward_writes=2)


def _gate(b: GraphBuilder, rows: int, hidden: int) -> None:
    """Gated linear unit, residual, layer norm."""
    _glu(b, rows, hidden, hidden)
    b.add(rows * hidden)
    b.layer_norm(rows, hidden)


def _gated_residual(
    b: GraphBuilder, rows: int, hidden: int, *, variables: int = 0, told: int = 0
) -> None:
    """Gated residual network; ``told`` rows are a context.

    From ``variables`` to one weight for each, where there are any, with a projected residual.
    """
    width, out = (hidden * variables, variables) if variables else (hidden, hidden)
    b.linear(rows, width, hidden)
    if told:
        b.linear(told, hidden, hidden, bias=False)
        b.elementwise(rows * hidden, reads=1, backward_reads=1, backward_writes=0.1)
    b.activation(rows * hidden)
    b.linear(rows, hidden, hidden)
    if not variables:
        b.dropout(rows * hidden)
    _glu(b, rows, hidden, out)
    if variables:
        b.linear(rows, width, out)
    b.add(rows * out)
    if out != 1:
        b.layer_norm(rows, out)


def _select(b: GraphBuilder, rows: int, hidden: int, variables: int, told: int = 0) -> None:
    """Weights of the variables from all together, a network for each, their mixture."""
    _gated_residual(b, rows, hidden, variables=variables, told=told)
    b.softmax(rows, variables)
    with b.repeat(variables):
        b.move(rows * hidden)  # slice
        _gated_residual(b, rows, hidden)
    b.concat(rows * hidden * variables)
    b.batched_matmul(rows, hidden, 1, variables)


def _mean_attention(b: GraphBuilder, hidden: int, heads: int) -> None:
    """Heads share their values; the output is their mean."""
    steps, dim = b.work.tokens, hidden // heads
    rows = b.batch_size * steps
    b.linear(rows, hidden, (2 * heads + 1) * dim, bias=False)
    b.elementwise(2 * rows * hidden, reads=1, backward_reads=1, kernels=2)
    b.move(b.batch_size * heads * steps * steps)  # causal mask
    b.attention(heads, steps, steps, dim, dropout=False)
    b.elementwise(rows * dim, reads=heads, backward_reads=1, backward_writes=heads)
    b.linear(rows, dim, hidden, bias=False)
    b.dropout(rows * hidden)
