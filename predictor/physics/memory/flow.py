"""The tensors of a forward pass as memory sees them: what flows on, and what is kept of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...graphs.operator import Kind, Operator
from ..job_graph import Storage


@dataclass(frozen=True, slots=True)
class Kept:
    """One forward operator: bytes one instance keeps, and the bytes its backward needs on top.

    ``scores`` is the part of ``bytes`` that holds attention scores; ``split`` marks what sequence
    parallelism divides among the tensor-parallel GPUs; ``weights`` are elements of the weights a
    matrix product multiplies; ``output`` is bytes of the result.
    """

    operator: Operator
    bytes: float
    transient: float
    output: float = 0.0
    weights: float = 0.0
    split: bool = False
    scores: float = 0.0


@dataclass(slots=True)
class Flow:
    """The tensor that flows from operator to operator, as the walk knows it."""

    storage: Storage
    stream: int = 0
    bytes: int = 0
    elements: float = 0.0
    kept: bool = False
    previous: Kind | None = None
    in_scores: bool = False
    in_norm: bool = False
    projected: float = 0.0
    joint: float = 0.0
    sizes: set[float] = field(default_factory=set)

    def fresh(self, elements: float, width: int, *, kept: bool = False) -> None:
        """A new current tensor of ``width`` bytes an element, kept by its maker or by nobody."""
        self.elements, self.bytes, self.kept = elements, width, kept
        if kept:
            self.sizes.add(elements)

    def keep(self, elements: float, width: int) -> float:
        """Bytes to keep a tensor in this format: 0 where an operator before keeps it already."""
        current = abs(self.elements - elements) < 0.5
        if current and self.kept and self.bytes == width:
            return 0.0
        earlier = not current and elements in self.sizes
        if earlier and (self.stream == width or not self.storage.autocast):
            return 0.0  # a branch of an earlier tensor, not cast for this operator
        self.sizes.add(elements)
        if current and self.bytes == width:
            self.kept = True
        return elements * width
