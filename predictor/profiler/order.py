"""Which case comes next: families in turn, known shapes between evenly spread ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from profiles.gpus import CPU

from .case import Case, Shape
from .families import FAMILIES, formats_of
from .family import Family
from .limits import Limits

SEED = 7
POINTS_LOG2 = 12  # of one family; no run of hours times 4096 shapes of each
# Shapes in a row that are too large or known already before a family is given up for this run.
MISSES = 200

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
            taken = list(islice(queue, turns))
            yield from taken
            if taken:
                left.append((turns, queue))
        queues = left


def _queue(family: Family, dtype: str, limits: Limits, popular: Sequence[Shape]) -> Iterator[Case]:
    """Known and spread shapes in turn, each once."""
    seen: set[str] = set()
    misses = 0
    for shape in _alternate(popular, _spread(family, cpu=limits.gpu.kind == CPU)):
        case = Case(family=family.name, op=family.op, dtype=dtype, shape=shape)
        name = f"{case.cell} {shape.params}"
        if name not in seen and limits.allow(case):
            misses = 0
            yield case
        else:
            misses += 1
        seen.add(name)
        if misses > MISSES:
            return


def _alternate(first: Sequence[Shape], second: Iterator[Shape]) -> Iterator[Shape]:
    for shape in first:
        yield shape
        yield from islice(second, 1)
    yield from second


def _spread(family: Family, *, cpu: bool) -> Iterator[Shape]:
    """Shapes at the points of a scrambled Sobol sequence (Owen 1998) over the axes."""
    from scipy.stats import qmc

    points = qmc.Sobol(len(family.axes), seed=SEED).random_base2(POINTS_LOG2)
    for shares in points.tolist():
        point = {
            axis.name: axis.at(share, cpu) for axis, share in zip(family.axes, shares, strict=True)
        }
        shape = family.shape(point)
        if shape is not None:
            yield shape
