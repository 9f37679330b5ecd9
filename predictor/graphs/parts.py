"""Where the repeated layers of a network are, and where its weights: what a pipeline cuts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from .operator import Direction, Graph, Kind, Operator

MATRIX = frozenset({Kind.GEMM, Kind.CONV})


@dataclass(frozen=True, slots=True)
class Parts:
    """The operators of a graph before, in and behind its repeated layers.

    ``body`` is (first, end) in ``Graph.operators``, empty where nothing is repeated; ``layers`` is
    how often. ``embedding_weights`` are those of trained tables, ``head_weights`` those of matrix
    products behind the layers, tied to the tables where ``tied``; all in elements.
    """

    body: tuple[int, int]
    layers: int
    embedding_weights: float
    head_weights: float
    tied: bool
    weights: float

    @property
    def body_weights(self) -> float:
        """Weights of the layers, and of what stands between them and the ends."""
        return self.weights - self.embedding_weights - (0 if self.tied else self.head_weights)

    def stage_weights(self, stage: int, share: float, stages: int) -> float:
        """Weights of a pipeline stage with a ``share`` of the layers.

        The embedding is on the first, the head on the last: a tied one is held on both.
        """
        if stages == 1:
            return self.weights
        ends = self.embedding_weights * (stage == 0) + self.head_weights * (stage == stages - 1)
        return self.body_weights * share + ends


@lru_cache(maxsize=512)
def parts_of(graph: Graph) -> Parts:
    """The parts of a graph that was not cut into stages."""
    first, end = repeated(graph.operators)
    inside = graph.operators[first:end]
    tables = table_weights(graph)
    head = sum(weights_of(o) for o in graph.operators[end:] if is_forward(o)) if end else 0.0
    found = sum(weights_of(o) * o.count for o in graph.operators if is_forward(o)) + tables - head
    return Parts(
        body=(first, end),
        layers=int(min((o.count for o in inside), default=1)),
        embedding_weights=tables,
        head_weights=head,
        tied=abs(graph.parameters - found) < abs(graph.parameters - found - head),
        weights=float(graph.parameters),
    )


def repeated(operators: Sequence[Operator]) -> tuple[int, int]:
    """Where the repeated layers of a transformer begin and end; (0, 0) in other networks."""
    found = [i for i, o in enumerate(operators) if o.count > 1]
    if not found or not any(o.kind is Kind.LAYER_NORM for o in operators):
        return 0, 0
    return found[0], found[-1] + 1


def is_forward(operator: Operator) -> bool:
    """Whether this is work of the forward pass."""
    return operator.direction is Direction.FORWARD


def weights_of(operator: Operator) -> float:
    """Elements of the weight that one forward matrix product multiplies; 0 for other operators."""
    if operator.kind not in MATRIX:
        return 0.0
    dims = operator.dims
    return float(dims[1] * dims[2] * (dims[3] if operator.kind is Kind.CONV else 1))


def table_weights(graph: Graph) -> float:
    """Weights of trained embedding tables: their gradient is written over the whole table."""
    return sum(
        o.writes - o.dims[0] * o.dims[1]
        for o in graph.operators
        if o.kind is Kind.EMBEDDING and o.direction is Direction.WEIGHT_GRADIENT
    )


def hidden_norms(operators: Iterable[Operator]) -> tuple[Operator, ...]:
    """One norm for each branch of a layer, as wide as the stream between layers.

    A branch with a norm in front and another behind its last product counts once.
    """
    forward = [o for o in operators if is_forward(o)]
    norms = [o for o in forward if o.kind is Kind.LAYER_NORM]
    wide = [o for o in norms if o.dims[1] == norms[0].dims[1]]
    behind = {
        id(o) for last, o in pairwise(forward) if o.kind is Kind.LAYER_NORM and last.kind in MATRIX
    }
    return tuple(o for o in wide if id(o) not in behind) or tuple(wide)
