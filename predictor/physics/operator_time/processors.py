"""Times of operators on a CPU: a law for each cell, corrected by the rows measured nearest.

Rows of a CPU hold the call from Python and the dispatch; nothing is subtracted from them. Each CPU
is fitted from its own rows alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...graphs.operator import Direction, Kind
from ...job.precision import Dtype
from .fit import FittedOperators, thin
from .groups import HEAVY, PROXY
from .laws import Constant, Law
from .neighbours import interpolated
from .samples import Samples
from .solve import robust_fit
from .work import (
    CLASS_NAMES,
    CLASS_OF,
    DIRECTION_CODE,
    DIRECTIONS,
    DTYPE_CODE,
    DTYPES,
    FUNCTIONS,
    KIND_CODE,
    KINDS,
    LARGEST,
    PLAIN,
    REDUCTION,
    Floats,
    Ints,
    Work,
)

# Beside the classes of functions: convolutions with one channel in each group. oneDNN has no fast
# kernel for the data gradient of one with strides in BF16: it takes 30 times longer.
DEPTHWISE, STRIDED_DEPTHWISE = len(CLASS_NAMES), len(CLASS_NAMES) + 1
PARTS = (*CLASS_NAMES, "depthwise", "strided depthwise")

# Kinds whose time depends on rows and columns, not on bytes alone.
BY_ROWS = frozenset({Kind.LAYER_NORM, Kind.SOFTMAX, Kind.EMBEDDING, Kind.LOSS})
# Kinds whose launches are operators of their own; any other kind is one call on a CPU.
SEVERAL_CALLS = frozenset({Kind.ELEMENTWISE, Kind.CAST, Kind.OPTIMIZER})
_PRODUCT = {
    Kind.BATCHED_GEMM: Kind.GEMM,
    Kind.CONV: Kind.GEMM,
    Kind.ATTENTION: Kind.BATCHED_GEMM,
    Kind.RNN: Kind.GEMM,
}
_OTHER_FORMAT = {Dtype.BF16: Dtype.FP32, Dtype.FP16: Dtype.BF16, Dtype.FP32: Dtype.BF16}


@dataclass(frozen=True, slots=True)
class Cell:
    """Operators whose times are alike."""

    kind: Kind
    direction: Direction
    dtype: Dtype
    part: int = PLAIN

    @property
    def name(self) -> str:
        """``conv/forward/bf16`` or ``elementwise/forward/fp32/math``."""
        words = (self.kind, self.direction, self.dtype, PARTS[self.part])
        return "/".join(str(word) for word in words if word)

    @property
    def stand_ins(self) -> Iterator[Cell]:
        """Itself, then cells to take the time from where it has no rows, best first."""
        cell: Cell | None = self
        while cell is not None:
            for direction in _near(cell.direction):
                yield replace(cell, direction=direction)
                if (other := _OTHER_FORMAT.get(cell.dtype)) is not None:
                    yield replace(cell, direction=direction, dtype=other)
            cell = cell._proxy()

    def _proxy(self) -> Cell | None:
        if self.part != PLAIN:
            return replace(self, part=DEPTHWISE if self.part == STRIDED_DEPTHWISE else PLAIN)
        kind = _PRODUCT.get(self.kind) or PROXY.get(self.kind)
        return None if kind is None else replace(self, kind=kind)


_CLASS_OF = np.array(CLASS_OF)
_SUM, _FOREACH = FUNCTIONS.index("sum"), FUNCTIONS.index("foreach")


def _near(direction: Direction) -> tuple[Direction, ...]:
    forward, data, weight = DIRECTIONS[:3]
    if direction is weight:
        return (weight, data, forward)
    return (data, weight, forward) if direction is data else (forward, data, weight)


def codes(work: Work) -> Ints:
    """A number for the cell of each operator, (n,)."""
    direction, kind = work.direction, work.kind
    function = _CLASS_OF[work.function]
    forward = DIRECTION_CODE[Direction.FORWARD]
    pointwise = kind == KIND_CODE[Kind.ELEMENTWISE]
    # A sum over rows is the same work in either pass: the gradient of a bias.
    bias = pointwise & (direction == DIRECTION_CODE[Direction.WEIGHT_GRADIENT])
    function = np.where(bias, REDUCTION, function)
    direction = np.where((function == REDUCTION) & pointwise, forward, direction)
    direction = np.where(direction == DIRECTION_CODE[Direction.UPDATE], forward, direction)
    # A loss over numbers is pointwise; one over classes is a softmax.
    numbers = (kind == KIND_CODE[Kind.LOSS]) & (work.dims[:, 0] == 1)
    kind = np.where(numbers, KIND_CODE[Kind.ELEMENTWISE], kind)
    dtype = np.where(work.dtype == DTYPE_CODE[Dtype.TF32], DTYPE_CODE[Dtype.FP32], work.dtype)
    pool = (kind == KIND_CODE[Kind.POOL]) & (function == LARGEST)
    part = np.where((kind == KIND_CODE[Kind.ELEMENTWISE]) | pool, function, PLAIN)
    strided = (work.dims[:, 5] > 1) & (direction == DIRECTION_CODE[Direction.DATA_GRADIENT])
    weight = work.direction == DIRECTION_CODE[Direction.WEIGHT_GRADIENT]
    depth = np.where(weight, work.dims[:, 0], work.dims[:, 2])
    grouped = (work.kind == KIND_CODE[Kind.CONV]) & (work.dims[:, 3] > 1)
    part = np.where(
        grouped & (depth <= work.dims[:, 4]), np.where(strided, STRIDED_DEPTHWISE, DEPTHWISE), part
    )
    code = (kind * len(DIRECTIONS) + direction) * len(DTYPES) + dtype
    return np.asarray(code * len(PARTS) + part)


def cell_of(code: int) -> Cell:
    """The cell of a number."""
    rest, part = divmod(code, len(PARTS))
    rest, dtype = divmod(rest, len(DTYPES))
    kind, direction = divmod(rest, len(DIRECTIONS))
    return Cell(KINDS[kind], DIRECTIONS[direction], DTYPES[dtype], part)


def calls(work: Work) -> Floats:
    """Calls of torch that one instance of each operator takes, (n,)."""
    several = np.isin(work.kind, [KIND_CODE[kind] for kind in SEVERAL_CALLS])
    return np.where(several, np.maximum(work.kernels, 1.0), 1.0)


def places(cell: Cell, work: Work) -> Floats:
    """What near means in a cell: a label, then logarithms of sizes of one call, (n, 1 + d)."""
    if cell.kind in HEAVY or cell.kind in BY_ROWS:
        columns = 6 if cell.kind is Kind.CONV else 4 if cell.kind in HEAVY else 2
        sizes = _sizes(cell, work)[:, :columns]
    else:
        sizes = (work.bytes / calls(work))[:, None]
    return np.column_stack((_label(cell, work), np.log(np.maximum(sizes, 1.0))))


def _sizes(cell: Cell, work: Work) -> Floats:
    """Dims; the depth of a convolution is that of the products it counts, strides left out."""
    dims = work.dims.copy()
    if cell.kind is Kind.CONV:
        outputs = 2.0 * dims[:, 0] * dims[:, 1] * np.maximum(dims[:, 3], 1.0)
        dims[:, 2] = work.flops / np.maximum(outputs, 1.0)
    return dims


def _label(cell: Cell, work: Work) -> Floats:
    """What makes operators of a cell differ beside their size, (n,)."""
    if cell.kind is Kind.RNN:
        return work.dims[:, 3]
    if cell.kind is not Kind.ELEMENTWISE:
        return np.zeros(len(work))
    update = work.kind == KIND_CODE[Kind.OPTIMIZER]
    label = np.where(update & (work.function == 0), _FOREACH, work.function)
    return np.where(cell.part == REDUCTION, _SUM, label).astype(float)


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
    return thin(index, MAX_ROWS, np.random.default_rng(SEED))


def _residuals(samples: Samples, p: Floats) -> Floats:
    return np.asarray(np.log(processor_seconds(p[None, :], samples.work) / samples.seconds))


def _constants(samples: Samples, prior: Floats, deviation: Floats) -> Floats:
    return robust_fit(lambda p: _residuals(samples, p), prior, deviation, scale=0.3)


def _fitted(cell: Cell, samples: Samples, prior: Floats) -> FittedOperators:
    constants = _constants(samples, prior, PROCESSOR.deviation * CELL_DEVIATION)
    near = interpolated(places(cell, samples.work), -_residuals(samples, constants))
    architecture = str(samples.architecture[0])
    return FittedOperators.of(cell.name, architecture, constants, samples, near)


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
