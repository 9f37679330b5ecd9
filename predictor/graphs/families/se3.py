"""SE(3)-transformer: equivariant attention on molecular graphs.

Fuchs et al. arXiv 2006.10503; fused tensor-field convolutions of NVIDIA DeepLearningExamples.
"""

from __future__ import annotations

from ..builder import GraphBuilder
from . import Workload, family


@family("se3")
def se3_transformer(
    b: GraphBuilder,
    work: Workload,
    *,
    layers: int = 7,
    degrees: int = 4,
    channels: int = 32,
    heads: int = 8,
    channels_div: int = 2,
    node_features: int = 6,
    edge_features: int = 5,
    nodes: float = 18.0,
    edges: float = 37.3,
) -> None:
    """One sample is a molecule of ``nodes`` atoms and ``edges`` directed bonds on average."""
    atoms, bonds = round(b.batch_size * nodes), round(b.batch_size * edges)
    dims = degrees**2  # 1 + 3 + 5 + ...
    b.input(nodes * (node_features + 3) + edges * (edge_features + dims * dims))
    values = channels // channels_div
    for degree in range(degrees):
        out = 2 * values if degree == 0 else values
        _convolve(b, bonds, node_features, out, 1, 1, 2 * degree + 1, edge_features)
    _attend(b, atoms, bonds, values, dims, heads, keys=1)
    b.linear(atoms, node_features, values, bias=False)
    _project(b, atoms, values, channels, degrees, extra=node_features)
    frequencies = sum(2 * min(i, j) + 1 for i in range(degrees) for j in range(degrees))
    with b.repeat(layers - 1):
        _norm(b, atoms, channels, degrees)
        b.elementwise(bonds * channels * dims, reads=1, kernels=degrees + 1)  # gather, join
        _convolve(b, bonds, channels, 2 * values, frequencies, dims, dims, edge_features)
        _project(b, atoms, channels, values, degrees)
        _attend(b, atoms, bonds, values, dims, heads, keys=dims)
        _project(b, atoms, values + channels, channels, degrees)
    _norm(b, atoms, channels, degrees)
    pooled = channels * degrees
    _convolve(b, bonds, channels, pooled, degrees, dims, 1, edge_features)
    b.linear(atoms, channels, pooled, bias=False)
    b.elementwise(atoms * pooled, reads=bonds / atoms, kernels=3)  # sum of edges, maximum of atoms
    b.linear(b.batch_size, pooled, pooled)
    b.activation(b.batch_size * pooled)
    b.linear(b.batch_size, pooled, 1)
    b.regression_loss(b.batch_size)


def _convolve(
    b: GraphBuilder,
    bonds: int,
    width: int,
    out: int,
    frequencies: int,
    dims_in: int,
    dims_out: int,
    edge_features: int,
    radial: int = 32,
) -> None:
    """Radial network of every bond, basis times features, weights times that."""
    for inputs in (edge_features, radial):
        b.linear(bonds, inputs, radial)
        b.layer_norm(bonds, radial)
        b.activation(bonds * radial)
    b.linear(bonds, radial, frequencies * width * out, bias=False)
    if dims_in > 1:
        b.batched_matmul(bonds, width, frequencies * dims_out, dims_in)
    b.batched_matmul(bonds, out, dims_out, width * frequencies)


def _project(
    b: GraphBuilder, atoms: int, width: int, out: int, degrees: int, *, extra: int = 0
) -> None:
    """A weight matrix for each degree; ``extra`` channels join at degree zero only."""
    for degree in range(degrees):
        inputs = width + extra if degree == 0 else width
        b.concat(atoms * inputs * (2 * degree + 1))
        b.linear(atoms * (2 * degree + 1), inputs, out, bias=False)


def _attend(
    b: GraphBuilder, atoms: int, bonds: int, values: int, dims: int, heads: int, *, keys: int
) -> None:
    """Scores on bonds, softmax over the bonds of an atom, weighted sum."""
    b.elementwise(bonds * values * keys, reads=2, writes=1 / keys, backward_writes=2, kernels=3)
    b.softmax(bonds, heads)
    b.elementwise(bonds * values * dims, reads=1, backward_writes=2, kernels=2)
    b.elementwise(atoms * values * dims, reads=bonds / atoms, backward_writes=bonds / atoms)


def _norm(b: GraphBuilder, atoms: int, channels: int, degrees: int) -> None:
    """Lengths of the features of every degree, group norm and ReLU of them, rescaling."""
    rows = atoms * degrees
    b.elementwise(atoms * channels * degrees**2, kernels=4 * degrees, backward_kernels=6 * degrees)
    b.layer_norm(rows, channels)
    b.parameters(2 * channels * (degrees - 1))
    b.activation(rows * channels)
