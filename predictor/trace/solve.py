"""Traces at a few sizes -> operators for any batch size and sequence length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..errors import GraphError
from ..graphs.operator import Operator
from ..graphs.traced import SymbolicOperator
from .laws import Grid, Point, holds, solve
from .repeats import folded

# Batch sizes that are solved from: small, and not 1, for which torch takes paths of its own.
BATCHES = (2, 3, 5)
Run = Callable[[int, int], Sequence[Operator]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """Operators as laws, and of which sizes they are laws."""

    operators: tuple[SymbolicOperator, ...]
    any_batch: bool
    any_seq_len: bool


def solved(run: Run, batch: int, seq_len: int | None) -> Solved:
    """Solve the operators that ``run`` gives for a batch size and a sequence length.

    The laws must hold at the sizes asked for, from which they were not solved. Where none holds,
    the length is held fixed, then the batch too.
    """
    known: dict[Point, Sequence[Operator]] = {}

    def at(point: Point) -> Sequence[Operator]:
        if point not in known:
            known[point] = run(*point)
        return known[point]

    asked = (batch, seq_len or 0)
    for grid in _grids(*asked):
        laws = _laws(at, grid)
        if laws is not None and holds(laws, at(asked), asked):
            return _solved(laws, grid)
    grid = Grid((batch,), asked[1:])
    laws = solve({asked: at(asked)}, grid)
    assert laws is not None  # one point has one structure
    return _solved(laws, grid)


def _solved(laws: Sequence[SymbolicOperator], grid: Grid) -> Solved:
    return Solved(
        operators=folded(laws), any_batch=len(grid.batches) > 1, any_seq_len=len(grid.seq_lens) > 1
    )


def _laws(
    at: Callable[[Point], Sequence[Operator]], grid: Grid
) -> tuple[SymbolicOperator, ...] | None:
    """The laws over a grid; None where there are none, or a point is not possible."""
    try:
        return solve({point: at(point) for point in grid.points}, grid)
    except GraphError:
        return None


def _grids(batch: int, seq_len: int) -> Iterator[Grid]:
    """Odd lengths first: even ones may be a head size by chance, and shapes be taken for others."""
    quarters = [seq_len * part // 4 for part in (1, 2, 3)]
    for lengths in (tuple(q | 1 for q in quarters), tuple(quarters)):
        if quarters[0] > 1:
            yield Grid(BATCHES[:2], lengths)
    if quarters[0] > 1:
        yield Grid(BATCHES, tuple(q | 1 for q in quarters))
    yield Grid(BATCHES[:2], (seq_len,))
    yield Grid(BATCHES, (seq_len,))
