"""Sizes to trace at: unlike every size of the network, so that none is taken for another."""

from __future__ import annotations

from collections.abc import Iterator, Set
from math import isqrt

from .laws import Grid, Point

# Lengths that strides and windows divide: of audio (320 = 5 x 2^6 samples a frame), of patches.
STEPS = (960, 64, 8)
PARTS = (1, 2, 3)  # quarters of the length asked for


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
