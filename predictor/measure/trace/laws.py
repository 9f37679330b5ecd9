"""How every size of every operator depends on batch size and sequence length, solved from traces.

A size is a polynomial in both: exact interpolation over a grid of points, in fractions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import isqrt
from operator import attrgetter

from ...graphs.operator import Operator
from ...graphs.traced import Law, SymbolicOperator

Point = tuple[int, int]  # batch size and sequence length
Traces = Mapping[Point, Sequence[Operator]]
_SIZES = tuple(attrgetter(name) for name in ("flops", "reads", "writes", "kernels"))
_TOLERANCE = 1e-9
_CONFUSED = 0.25  # of traffic and launches, where a size asked for is a size of the network too
# Lengths that strides and windows divide: of audio (320 = 5 x 2^6 samples a frame), of patches.
STEPS = (960, 64, 8)
PARTS = (1, 2, 3)  # quarters of the length asked for


@dataclass(frozen=True, slots=True)
class Grid:
    """The points a law is solved from: all pairs of batch sizes and sequence lengths."""

    batches: tuple[int, ...]
    seq_lens: tuple[int, ...]

    @property
    def points(self) -> tuple[Point, ...]:
        """Every pair."""
        return tuple(product(self.batches, self.seq_lens))


def constant(size: float) -> Law:
    """A law that depends on nothing."""
    return ((float(size), 0, 0),) if size else ()


class Solver:
    """Solves laws over one grid; equal columns of sizes are solved once."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._by_batch = _basis(grid.batches)
        self._by_length = _basis(grid.seq_lens)
        self._known: dict[tuple[float, ...], Law] = {}

    def law(self, sizes: Sequence[float]) -> Law:
        """The polynomial through one size a point, in the order of ``Grid.points``."""
        column = tuple(sizes)
        if column not in self._known:
            same = all(size == column[0] for size in column)
            self._known[column] = constant(column[0]) if same else self._solved(column)
        return self._known[column]

    def _solved(self, sizes: Sequence[float]) -> Law:
        width = len(self._grid.seq_lens)
        exact = [Fraction(size) for size in sizes]
        terms = []
        for i, j in product(range(len(self._grid.batches)), range(width)):
            total = sum(
                exact[a * width + c] * self._by_batch[a][i] * self._by_length[c][j]
                for a, c in product(range(len(self._grid.batches)), range(width))
            )
            if total:
                terms.append((float(total), i, j))
        return tuple(terms)


def solve(traces: Traces, grid: Grid) -> tuple[SymbolicOperator, ...] | None:
    """Operators as laws; None where the traces are not the same operators in the same order."""
    columns = [traces[point] for point in grid.points]
    if len({len(column) for column in columns}) > 1:
        return None
    solver = Solver(grid)
    found = []
    for row in zip(*columns, strict=True):
        if len({(o.kind, o.direction, len(o.dims), o.count) for o in row}) > 1:
            return None
        found.append(_symbolic(solver, row))
    return tuple(found)


def holds(laws: Sequence[SymbolicOperator], operators: Sequence[Operator], point: Point) -> bool:
    """Whether the laws give these operators, which were not solved from, at their point."""
    return len(laws) == len(operators) and all(
        _equal(law.at(*point), operator) for law, operator in zip(laws, operators, strict=True)
    )


def alike(laws: Sequence[SymbolicOperator], operators: Sequence[Operator], point: Point) -> bool:
    """Whether the laws give the same work in all, though perhaps divided otherwise.

    At sizes that the network has too, a sum is skipped or found elsewhere: FLOPs are the same,
    traffic and launches nearly so.
    """
    ours = [law.at(*point) for law in laws]
    allowed = (_TOLERANCE, _CONFUSED, _CONFUSED, _CONFUSED)
    for size, share in zip(_SIZES, allowed, strict=True):
        given, found = (sum(size(o) * o.count for o in every) for every in (ours, operators))
        if abs(given - found) > share * max(1.0, found):
            return False
    return True


def _equal(a: Operator, b: Operator) -> bool:
    if (a.kind, a.direction, a.dims) != (b.kind, b.direction, b.dims):
        return False
    return all(abs(s(a) - s(b)) <= _TOLERANCE * max(1.0, abs(s(b))) for s in _SIZES)


def _symbolic(solver: Solver, row: Sequence[Operator]) -> SymbolicOperator:
    first = row[0]
    flops, reads, writes, kernels = (solver.law([s(o) for o in row]) for s in _SIZES)
    return SymbolicOperator(
        kind=first.kind.value,
        direction=first.direction.value,
        dims=tuple(solver.law([o.dims[i] for o in row]) for i in range(len(first.dims))),
        flops=flops,
        reads=reads,
        writes=writes,
        kernels=kernels,
        count=int(first.count),
        function=first.function,
        origins=first.origins,
    )


def _basis(nodes: Sequence[int]) -> list[list[Fraction]]:
    """Coefficients of each Lagrange polynomial over the nodes, lowest power first."""
    found = []
    for node in nodes:
        row = [Fraction(1)]
        for other in nodes:
            if other != node:
                scale = Fraction(1, node - other)
                up, flat = [Fraction(0), *row], [*row, Fraction(0)]
                row = [scale * (u - other * f) for u, f in zip(up, flat, strict=True)]
        found.append(row)
    return found


def grids(batch: int, seq_len: int, taken: Set[int]) -> Iterator[Grid]:
    """Grids to solve from, the most telling first; ``taken`` are sizes that the network has.

    Primes are no product of other sizes. Where a network takes none, its lengths are those that
    its strides divide as they divide the length asked for.
    """
    batches = tuple(_primes(2, taken, 3))
    every = dict.fromkeys(_lengths(seq_len, taken))
    for number in (2, 3):
        yield from (Grid(batches[:number], lengths) for lengths in every)
    yield Grid(batches[:2], (seq_len,))
    yield Grid(batches, (seq_len,))


def near(batch: int, seq_len: int, taken: Set[int]) -> Point:
    """A point beside the one asked for that is on no grid, and like no size of the network."""
    lengths = (n for n in range(seq_len - 1, seq_len // 2, -1) if _prime(n) and n not in taken)
    return next(_primes(max(batch, 16), taken, 1)), next(lengths, seq_len)


def _lengths(seq_len: int, taken: Set[int]) -> Iterator[tuple[int, ...]]:
    if not seq_len:
        return
    quarters = [max(2, seq_len * part // 4) for part in PARTS]
    found: list[int] = []
    for start in quarters:
        found += _primes(start, taken | set(found), 1)
    yield tuple(found)
    for step in STEPS:
        if seq_len >= 4 * step:
            yield tuple(seq_len - (4 - part) * (seq_len // 4 // step * step) for part in PARTS)
    if len(set(quarters)) == len(quarters):
        yield tuple(quarters)


def _primes(start: int, taken: Set[int], number: int) -> Iterator[int]:
    """The next primes from ``start`` on that are not taken."""
    size = start
    while number:
        if _prime(size) and size not in taken:
            number -= 1
            yield size
        size += 1


def _prime(number: int) -> bool:
    return number > 1 and all(number % d for d in range(2, isqrt(number) + 1))
