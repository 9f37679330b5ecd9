"""Which case comes next: families in turn, known shapes between evenly spread ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice

import torch

from profiles.gpus import CPU

from .case import Case, Limits, Shape
from .families import FAMILIES, formats_of
from .family import Family

SEED = 7
POINTS = 4096  # of one family; no run of hours times 4096 shapes of each
# Shapes in a row that are too large or known already before a family is given up for this run.
MISSES = 200

Known = Mapping[tuple[str, str], Sequence[Shape]]


def ordered(limits: Limits, formats: tuple[str, ...], known: Callable[[], Known]) -> Iterator[Case]:
    """Cases that fit, round after round over all families and formats, until none is left.

    The first round is of spread shapes alone: ``known`` is asked after it.
    """
    known = cache(known)
    queues = [
        (family.turns, _queue(family, dtype, limits, known))
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


def _queue(
    family: Family, dtype: str, limits: Limits, known: Callable[[], Known]
) -> Iterator[Case]:
    """Spread and known shapes in turn, each once."""
    seen: set[str] = set()
    misses = 0
    for shape in _shapes(family, dtype, limits, known):
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


def _shapes(
    family: Family, dtype: str, limits: Limits, known: Callable[[], Known]
) -> Iterator[Shape]:
    spread = _spread(family, cpu=limits.gpu.kind == CPU)
    yield from islice(spread, family.turns)
    for shape in known().get((family.name, dtype), ()):
        yield shape
        yield from islice(spread, 1)
    yield from spread


def _spread(family: Family, *, cpu: bool) -> Iterator[Shape]:
    """Shapes at the points of a scrambled Sobol sequence over the axes (Owen 1998)."""
    engine = torch.quasirandom.SobolEngine(  # type: ignore[no-untyped-call]
        len(family.axes), scramble=True, seed=SEED
    )
    for shares in engine.draw(POINTS).tolist():
        point = {
            axis.name: axis.at(share, cpu) for axis, share in zip(family.axes, shares, strict=True)
        }
        shape = family.shape(point)
        if shape is not None:
            yield shape
