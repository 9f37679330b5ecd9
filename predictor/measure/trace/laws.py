"""How every size of every operator depends on batch size and sequence length, solved from traces.

A size is a polynomial in both: exact interpolation over a grid of points, in fractions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import chain, count, islice, product
from math import isqrt
from operator import attrgetter

from ...errors import GraphError
from ...graphs.families.stored import Law, SymbolicOperator
from ...graphs.operator import Direction, Operator

Point = tuple[int, int]  # batch size and sequence length
Group = tuple[SymbolicOperator, ...]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenSizes:
    """The operators of one trace, and every size of every tensor in it."""

    operators: Sequence[Operator]
    sizes: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """Operators as laws, and of which sizes they are laws."""

    operators: Group
    any_batch: bool
    any_seq_len: bool


def solved(run: Callable[[int, int], SeenSizes], batch: int, seq_len: int | None) -> Solved:
    """Solve the operators that ``run`` gives for a batch size and a sequence length.

    The laws must hold at the sizes asked for, from which they were not solved; where those are
    sizes of the network too, at a point beside them. Where no laws do, the length is held fixed,
    then the batch too.
    """
    at = cache(run)
    asked = (batch, seq_len or 0)
    seen = at(*asked)
    for grid in grids(*asked, seen.sizes):
        laws = _laws(at, grid)
        if laws is not None and _holds(laws, at, asked, grid):
            break
    else:
        grid = Grid((batch,), asked[1:])
        laws = symbolic([seen.operators], _interpolation(grid))
        assert laws is not None  # one point has one structure
    return Solved(
        operators=folded(laws), any_batch=len(grid.batches) > 1, any_seq_len=len(grid.seq_lens) > 1
    )


def _laws(at: Callable[[int, int], SeenSizes], grid: Grid) -> Group | None:
    """The laws over a grid; None where there are none, or a point is not possible."""
    columns: list[Sequence[Operator]] = []
    try:
        for point in grid.points:
            columns.append(at(*point).operators)
            if len(columns[-1]) != len(columns[0]):
                return None
    except GraphError:
        return None
    return symbolic(columns, _interpolation(grid))


def _holds(laws: Group, at: Callable[[int, int], SeenSizes], asked: Point, grid: Grid) -> bool:
    """Whether the laws give what is traced at the point asked for, or all but what it confuses."""
    seen = at(*asked)
    if holds(laws, seen.operators, asked):
        return True
    if not _alike(laws, seen.operators, asked):
        return False
    beside = _near(*asked, seen.sizes)
    if len(grid.seq_lens) == 1:
        beside = (beside[0], asked[1])
    try:
        return holds(laws, at(*beside).operators, beside)
    except GraphError:
        return False


def symbolic(
    columns: Sequence[Sequence[Operator]], law: Callable[[tuple[float, ...]], Law]
) -> Group | None:
    """Operators as laws; None where the traces are not the same operators in the same order.

    ``law`` solves one size a trace; equal rows of sizes are solved once.
    """
    if len({len(column) for column in columns}) > 1:
        return None
    rows = list(zip(*columns, strict=True))
    if any(len({(o.kind, o.direction, len(o.dims), o.count) for o in row}) > 1 for row in rows):
        return None
    law = cache(law)
    found = []
    for row in rows:
        first = row[0]
        flops, reads, writes, kernels = (law(tuple(s(o) for o in row)) for s in _SIZES)
        found.append(
            SymbolicOperator(
                kind=first.kind.value,
                direction=first.direction.value,
                dims=tuple(map(law, zip(*(o.dims for o in row), strict=True))),
                flops=flops,
                reads=reads,
                writes=writes,
                kernels=kernels,
                count=int(first.count),
                function=first.function,
                origins=first.origins,
            )
        )
    return tuple(found)


def _interpolation(grid: Grid) -> Callable[[tuple[float, ...]], Law]:
    """What gives the polynomial through one size a point, in the order of ``Grid.points``."""
    by_batch, by_length = _basis(grid.batches), _basis(grid.seq_lens)
    places = list(product(range(len(grid.batches)), range(len(grid.seq_lens))))

    def law(sizes: tuple[float, ...]) -> Law:
        if all(size == sizes[0] for size in sizes):
            return ((float(sizes[0]), 0, 0),) if sizes[0] else ()
        exact = list(zip(map(Fraction, sizes), places, strict=True))
        totals = {
            (i, j): sum(size * by_batch[a][i] * by_length[c][j] for size, (a, c) in exact)
            for i, j in places
        }
        return tuple((float(total), i, j) for (i, j), total in totals.items() if total)

    return law


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


def holds(laws: Group, operators: Sequence[Operator], point: Point) -> bool:
    """Whether the laws give these operators, which were not solved from, at their point."""

    def equal(a: Operator, b: Operator) -> bool:
        named = (a.kind, a.direction, a.dims) == (b.kind, b.direction, b.dims)
        return named and all(abs(s(a) - s(b)) <= _TOLERANCE * max(1.0, abs(s(b))) for s in _SIZES)

    return len(laws) == len(operators) and all(
        equal(law.at(*point), operator) for law, operator in zip(laws, operators, strict=True)
    )


def _alike(laws: Group, operators: Sequence[Operator], point: Point) -> bool:
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


def _near(batch: int, seq_len: int, taken: Set[int]) -> Point:
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
    return islice((n for n in count(start) if _prime(n) and n not in taken), number)


def _prime(number: int) -> bool:
    return number > 1 and all(number % d for d in range(2, isqrt(number) + 1))


def folded(operators: Sequence[SymbolicOperator]) -> Group:
    """The same operators, with runs of equal layers told by ``count``."""
    split: list[list[SymbolicOperator]] = []  # each forward operator with its gradients
    for operator in operators:
        if operator.direction == Direction.FORWARD or not split:
            split.append([])
        split[-1].append(operator)
    groups = [tuple(group) for group in split]
    names: dict[Group, int] = {}
    numbers = [names.setdefault(group, len(names)) for group in groups]
    return tuple(chain.from_iterable(_fold(groups, numbers)))


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
