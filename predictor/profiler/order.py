"""Which case comes next: families in turn, known shapes between evenly spread ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from profiles.conventions import SHAPE_FIELDS
from profiles.gpus import CPU, Gpu

from .case import Case, Shape
from .families import FAMILIES, formats_of
from .family import Family
from .limits import Limits

SEED = 7
# Points in a row that do not fit before a family is given up for this run.
MISSES = 256
_LOG2_POINTS = 12  # of one spread; no run of hours uses up 4096 points of every family

Popular = Mapping[tuple[str, str], Sequence[Shape]]


def ordered(limits: Limits, formats: tuple[str, ...], popular: Popular) -> Iterator[Case]:
    """Cases that fit, round after round over all families and formats, until none is left."""
    queues = [
        (family.turns, _queue(family, dtype, limits, popular.get((family.name, dtype), ())))
        for family in FAMILIES
        for dtype in formats_of(family, formats)
    ]
    while queues:
        left = []
        for turns, queue in queues:
            taken = [case for _, case in zip(range(turns), queue, strict=False)]
            yield from taken
            if taken:
                left.append((turns, queue))
        queues = left


def _queue(
    family: Family, dtype: str, limits: Limits, popular: Sequence[Shape]
) -> Iterator[Case]:
    """Spread and known shapes in turn; each shape once."""
    seen: set[str] = set()
    for shape in _alternate(_spread(family, limits.gpu), popular):
        case = None if shape is None else Case(op=family.op, dtype=dtype, shape=shape)
        if case is None or not _new(case, seen) or not _runs_here(case, limits.gpu):
            yield from ()
        elif limits.allow(case):
            yield case


def _new(case: Case, seen: set[str]) -> bool:
    key = f"{case.cell} {case.shape.params}"
    fresh = key not in seen
    seen.add(key)
    return fresh
