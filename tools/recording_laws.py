"""How the sizes of recorded operators depend on batch and image: solved from few traces, stored.

A trace costs seconds. So each image is traced once, with a batch that is a prime no size of a
network has: wherever it is found again in a shape stands the batch, and the same calls with another
are had without torch. Along the side of the image sizes are polynomials, solved from two to five.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from predictor.graphs.families.stored import RECORDING_FORMAT, Law, SymbolicOperator
from predictor.graphs.operator import Operator
from predictor.measure.trace.calls import Tensor, TracedCall
from predictor.measure.trace.laws import symbolic

BATCH = 10007
_OTHER = 2  # how much larger the second batch is
_MOVED = 8  # what is moved is counted in eighths of an element, or more

Powers = tuple[int, ...]
OperatorsAt = Callable[[int, int], Sequence[Operator]]  # of a batch and a side


def with_batch(calls: Sequence[TracedCall], batch: int) -> list[TracedCall]:
    """Calls that were traced with ``BATCH`` samples, with another number of them."""
    known: dict[int, TracedCall] = {}

    def call(old: TracedCall) -> TracedCall:
        if id(old) not in known:
            known[id(old)] = new = replace(
                old,
                inputs=tuple(_tensor(t, batch) for t in old.inputs),
                outputs=tuple(_tensor(t, batch) for t in old.outputs),
                arguments=tuple(_size(a, batch) for a in old.arguments),
            )
            new.gradients = [call(c) for c in old.gradients]
            new.additions = [call(c) for c in old.additions]
        return known[id(old)]

    return [call(c) for c in calls]


def _size(value: Any, batch: int) -> Any:
    if isinstance(value, list | tuple):
        return [_size(v, batch) for v in value]
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value // BATCH * batch if whole and value % BATCH == 0 else value


def _tensor(tensor: Tensor, batch: int) -> Tensor:
    grows = round(tensor.moved * _MOVED) % BATCH == 0
    return replace(
        tensor,
        shape=tuple(_size(size, batch) for size in tensor.shape),
        moved=tensor.moved / BATCH * batch if grows else tensor.moved,
    )


def operator_laws(
    at: OperatorsAt, sides: Sequence[int], fixed: Powers, grown: Powers
) -> tuple[SymbolicOperator, ...] | None:
    """Operators as laws; None where they are not the same ones at every side.

    ``fixed`` are powers of the side in what does not grow with the batch, ``grown`` in what does.
    """
    columns = [at(batch, side) for batch in (BATCH, BATCH + _OTHER) for side in sides]
    parts = ((fixed, _inverse(sides, fixed)), (grown, _inverse(sides, grown)))

    def law(column: tuple[float, ...]) -> Law:
        """The law through one size a side, for the one batch and then for the other."""
        sizes = [Fraction(size) for size in column]
        pairs = list(zip(sizes[: len(sides)], sizes[len(sides) :], strict=True))
        growing = [(b - a) / _OTHER for a, b in pairs]
        still = [a - BATCH * g for (a, _), g in zip(pairs, growing, strict=True)]
        terms: list[tuple[float, int, int]] = []
        for i, (values, (powers, inverse)) in enumerate(zip((still, growing), parts, strict=True)):
            if all(value == values[0] for value in values):
                terms += [(float(values[0]), i, 0)] if values[0] else []
                continue
            for power, row in zip(powers, inverse, strict=True):
                if total := sum(a * b for a, b in zip(row, values, strict=True)):
                    terms.append((float(total), i, power))
        return tuple(terms)

    return symbolic(columns, law)


def packed(
    side: int, any_side: bool, weights: Mapping[str, Law], operators: Sequence[SymbolicOperator]
) -> bytes:
    """The bytes of a recording of operators in the order they run, always the same for the same."""
    laws: dict[Law, int] = {}
    names: dict[tuple[str, ...], int] = {}
    rows: dict[Any, int] = {}

    def place(known: dict[Any, int], row: Any) -> int:
        return known.setdefault(row, len(known))

    sequence = [
        place(
            rows,
            (
                o.kind,
                o.direction,
                tuple(place(laws, law) for law in o.dims),
                *(place(laws, law) for law in (o.flops, o.reads, o.writes, o.kernels)),
                o.count,
                o.function,
                None if o.origins is None else place(names, o.origins),
            ),
        )
        for o in operators
    ]
    content = {
        "format": RECORDING_FORMAT,
        "side": side,
        "any_side": any_side,
        "weights": {key: place(laws, law) for key, law in weights.items()},
        "origins": list(names),
        "laws": [[(int(c) if c.is_integer() else c, i, j) for c, i, j in law] for law in laws],
        "operators": list(rows),
        "sequence": sequence,
    }
    return gzip.compress(json.dumps(content, separators=(",", ":")).encode(), 9, mtime=0)


def _inverse(sides: Sequence[int], powers: Powers) -> list[list[Fraction]]:
    """The inverse of the matrix side^power."""
    n = len(sides)
    rows = [
        [*(Fraction(side**power) for power in powers), *(Fraction(i == j) for j in range(n))]
        for i, side in enumerate(sides)
    ]
    for c in range(n):
        pivot = next(r for r in range(c, n) if rows[r][c])
        rows[c], rows[pivot] = rows[pivot], rows[c]
        rows[c] = [x / rows[c][c] for x in rows[c]]
        for r in range(n):
            if r != c:
                factor = rows[r][c]
                rows[r] = [x - factor * y for x, y in zip(rows[r], rows[c], strict=True)]
    return [row[n:] for row in rows]
