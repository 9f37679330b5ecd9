"""Times of operators on a CPU: a law for each cell, corrected by the rows measured nearest.

Rows of a CPU hold the call from Python and the dispatch; nothing is subtracted from them. Each CPU
is fitted from its own rows alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...graphs.operator import Kind
from .cells import Cell, calls, cell_of, codes, places
from .fit import FittedOperators
from .laws import Constant, Law
from .neighbours import interpolated
from .samples import Samples
from .solve import robust_fit
from .work import KIND_CODE, Floats, Work

MIN_ROWS = 4  # of all cells that share a law
MAX_ROWS = 600  # of one cell; the correction costs the cube of it
SEED = 7
# How far a cell may move from the law it shares, relative to the prior of that law.
CELL_DEVIATION = 0.6
_RNN = KIND_CODE[Kind.RNN]


def processor_seconds(p: Floats, work: Work) -> Floats:
    """Seconds of operators on a CPU; ``p`` is (n or 1, 3).

    Each call, and each time step of a recurrent layer, costs a latency; FLOPs at a share of the
    peak and bytes at a share of the bandwidth follow one another, as one thread does both.
    """
    c = np.exp(p)
    times = np.where(work.kind == _RNN, np.maximum(work.dims[:, 0], 1.0), calls(work))
    compute = work.flops / (work.rate * c[:, 1])
    return np.asarray(c[:, 0] * 1e-6 * times + compute + work.bytes / (work.bandwidth * c[:, 2]))


PROCESSOR = Law(
    "processor",
    (
        Constant("latency_us", 2.0, 1.0),
        Constant("efficiency", -0.7, 0.7),
        Constant("memory_efficiency", 0.0, 0.7),
    ),
    processor_seconds,
)


def fit_cells(samples: Samples) -> Iterator[FittedOperators]:
    """Law and correction of every cell of one CPU that has rows.

    Cells of one kind and format share a law first, which is the prior of each: a short run of the
    profiler leaves but a few rows in a cell.
    """
    code = codes(samples.work)
    cells = {int(one): cell_of(int(one)) for one in np.unique(code)}
    for shared in dict.fromkeys((c.kind, c.dtype, c.part) for c in cells.values()):
        alike = [one for one, c in cells.items() if (c.kind, c.dtype, c.part) == shared]
        index = np.flatnonzero(np.isin(code, alike))
        if len(index) < MIN_ROWS:
            continue
        prior = _constants(samples.take(_thin(index)), PROCESSOR.prior, PROCESSOR.deviation)
        for one in alike:
            own = samples.take(_thin(np.flatnonzero(code == one)))
            yield _fitted(cells[one], own, prior)


def _thin(index: NDArray[np.intp]) -> NDArray[np.intp]:
    if len(index) <= MAX_ROWS:
        return index
    return np.sort(np.random.default_rng(SEED).choice(index, MAX_ROWS, replace=False))


def _residuals(samples: Samples, p: Floats) -> Floats:
    return np.asarray(np.log(processor_seconds(p[None, :], samples.work) / samples.seconds))


def _constants(samples: Samples, prior: Floats, deviation: Floats) -> Floats:
    return robust_fit(lambda p: _residuals(samples, p), prior, deviation, scale=0.3)


def _fitted(cell: Cell, samples: Samples, prior: Floats) -> FittedOperators:
    constants = _constants(samples, prior, PROCESSOR.deviation * CELL_DEVIATION)
    return FittedOperators(
        group=cell.name,
        architecture=str(samples.architecture[0]),
        constants=constants,
        rows=len(samples),
        gpus=tuple(str(name) for name in np.unique(samples.gpu)),
        sources=tuple(str(name) for name in np.unique(samples.source)),
        near=interpolated(places(cell, samples.work), -_residuals(samples, constants)),
    )


class ProcessorTimes:
    """Prices of one CPU."""

    def __init__(self, fitted: Sequence[FittedOperators]) -> None:
        self._fitted: Mapping[str, FittedOperators] = {f.group: f for f in fitted}

    def seconds(self, work: Work) -> Floats:
        """Seconds (n,) of ONE instance of each operator."""
        seconds = np.empty(len(work))
        code = codes(work)
        for one in np.unique(code):
            index = np.flatnonzero(code == one)
            seconds[index] = self._of_cell(cell_of(int(one)), work.take(index))
        return seconds

    def evidence(self, work: Work) -> list[str]:
        """What prices rest on, one line a cell."""
        return [_evidence(cell, *self._source(cell)) for cell in map(cell_of, _unique(work))]

    def _of_cell(self, cell: Cell, work: Work) -> Floats:
        source, fitted = self._source(cell)
        if fitted is None:
            return processor_seconds(PROCESSOR.prior[None, :], work)
        seconds = processor_seconds(fitted.constants[None, :], work)
        if fitted.near is None or not _alike(cell, source):
            return seconds
        return np.asarray(seconds * np.exp(fitted.near.at(places(source, work))))

    def _source(self, cell: Cell) -> tuple[Cell, FittedOperators | None]:
        for candidate in cell.stand_ins:
            if (found := self._fitted.get(candidate.name)) is not None:
                return candidate, found
        return cell, None


def _alike(cell: Cell, source: Cell) -> bool:
    """Whether places of two cells mean the same sizes."""
    products = (Kind.CONV, Kind.ATTENTION, Kind.RNN)
    return cell.kind == source.kind or not ({cell.kind, source.kind} & set(products))


def _unique(work: Work) -> list[int]:
    return [int(code) for code in np.unique(codes(work))]


def _evidence(cell: Cell, source: Cell, fitted: FittedOperators | None) -> str:
    if fitted is None:
        return f"{cell.name}: no measurement on this CPU, roofline with priors"
    of = "" if cell == source else f" of {source.name}"
    return f"{cell.name}: own table{of}, {fitted.rows} rows of {', '.join(fitted.gpus)}"
