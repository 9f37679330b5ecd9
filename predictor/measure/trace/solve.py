"""Traces at a few sizes -> operators for any batch size and sequence length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from ...errors import GraphError
from ...graphs.operator import Direction, Operator
from ...graphs.traced import SymbolicOperator
from .laws import Grid, Point, alike, grids, holds, near, solve


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenSizes:
    """The operators of one trace, and every size of every tensor in it."""

    operators: Sequence[Operator]
    sizes: frozenset[int]


Run = Callable[[int, int], SeenSizes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """Operators as laws, and of which sizes they are laws."""

    operators: tuple[SymbolicOperator, ...]
    any_batch: bool
    any_seq_len: bool


def solved(run: Run, batch: int, seq_len: int | None) -> Solved:
    """Solve the operators that ``run`` gives for a batch size and a sequence length.

    The laws must hold at the sizes asked for, from which they were not solved; where those are
    sizes of the network too, at a point beside them. Where no laws do, the length is held fixed,
    then the batch too.
    """
    known: dict[Point, SeenSizes] = {}

    def at(point: Point) -> SeenSizes:
        if point not in known:
            known[point] = run(*point)
        return known[point]

    asked = (batch, seq_len or 0)
    taken = at(asked).sizes
    for grid in grids(*asked, taken):
        laws = _laws(at, grid)
        if laws is not None and _holds(laws, at, asked, grid):
            return _solved(laws, grid)
    grid = Grid((batch,), asked[1:])
    laws = solve({asked: at(asked).operators}, grid)
    assert laws is not None  # one point has one structure
    return _solved(laws, grid)


def _solved(laws: Sequence[SymbolicOperator], grid: Grid) -> Solved:
    return Solved(
        operators=folded(laws), any_batch=len(grid.batches) > 1, any_seq_len=len(grid.seq_lens) > 1
    )


def _laws(at: Callable[[Point], SeenSizes], grid: Grid) -> tuple[SymbolicOperator, ...] | None:
    """The laws over a grid; None where there are none, or a point is not possible."""
    traces: dict[Point, Sequence[Operator]] = {}
    try:
        for point in grid.points:
            traces[point] = at(point).operators
            if len(traces[point]) != len(traces[grid.points[0]]):
                return None
    except GraphError:
        return None
    return solve(traces, grid)


def _holds(
    laws: Sequence[SymbolicOperator], at: Callable[[Point], SeenSizes], asked: Point, grid: Grid
) -> bool:
    """Whether the laws give what is traced at the point asked for, or all but what it confuses."""
    if holds(laws, at(asked).operators, asked):
        return True
    if not alike(laws, at(asked).operators, asked):
        return False
    beside = near(*asked, at(asked).sizes)
    if len(grid.seq_lens) == 1:
        beside = (beside[0], asked[1])
    try:
        return holds(laws, at(beside).operators, beside)
    except GraphError:
        return False


Group = tuple[SymbolicOperator, ...]


def folded(operators: Sequence[SymbolicOperator]) -> tuple[SymbolicOperator, ...]:
    """The same operators, with runs of equal layers told by ``count``."""
    groups = _groups(operators)
    names: dict[Group, int] = {}
    numbers = [names.setdefault(group, len(names)) for group in groups]
    return tuple(chain.from_iterable(_fold(groups, numbers)))


def _groups(operators: Sequence[SymbolicOperator]) -> list[Group]:
    """Each forward operator with its gradients."""
    groups: list[list[SymbolicOperator]] = []
    for operator in operators:
        if operator.direction == Direction.FORWARD or not groups:
            groups.append([])
        groups[-1].append(operator)
    return [tuple(group) for group in groups]


def _fold(groups: Sequence[Group], numbers: Sequence[int]) -> list[Group]:
    """Fold the run that saves most, then what is before and behind it."""
    saved, start, period, times = _longest_run(numbers)
    if not saved:
        return list(groups)
    end = start + period * times
    layer = [
        tuple(replace(o, count=o.count * times) for o in group)
        for group in groups[start : start + period]
    ]
    before = _fold(groups[:start], numbers[:start])
    return [*before, *layer, *_fold(groups[end:], numbers[end:])]


def _longest_run(numbers: Sequence[int]) -> tuple[int, int, int, int]:
    """Groups saved, start, period and repetitions of the best run; saves 0 where none is."""
    best = (0, 0, 0, 0)
    for period in range(1, len(numbers) // 2 + 1):
        run = 0
        for i in range(len(numbers) - period - 1, -1, -1):
            run = run + 1 if numbers[i] == numbers[i + period] else 0
            times = run // period + 1
            saved = (times - 1) * period
            if saved > best[0]:
                best = (saved, i, period, times)
    return best
