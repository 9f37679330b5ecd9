"""Device times of operators on any GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from profiles.gpus import CPU, Gpu
from profiles.tables import OperatorTable

from ...graphs.operator import Kind
from ..autocast import TypedOperator
from .fit import POOLED, FittedOperators, fit_groups
from .groups import HEAVY, SLOTS, OperatorGroup, groups, slots
from .laws import MEMORY, Law
from .neighbours import Neighbours, stored
from .processors import ProcessorTimes, fit_cells
from .samples import architecture_of, samples_of, silicon_of
from .tiles import CONV
from .work import CORES, KINDS, MATRIX_KINDS, Engines, Floats, Work, work_of

_MATRIX, _MEMORY = 0, 1
_FORMULAS: tuple[Law, ...] = (CONV, MEMORY, HEAVY[Kind.ATTENTION], HEAVY[Kind.RNN])
_FORMULA_OF = np.array(
    [
        _MATRIX
        if kind in MATRIX_KINDS
        else _FORMULAS.index(HEAVY[kind])
        if kind in HEAVY
        else _MEMORY
        for kind in KINDS
    ]
)
_WIDEST = max(len(law.constants) for law in _FORMULAS)


Operators = tuple[TypedOperator, ...]
MOST_TOTALS = 4096  # kept at a time; networks of any sizes may be asked for


@dataclass(frozen=True, slots=True)
class _Prices:
    """Constants of every slot on one GPU, (slots, p)."""

    engines: Engines
    constants: Floats


@dataclass(frozen=True)
class OperatorTimes:
    """Fitted time laws; ``seconds`` prices operators on a GPU."""

    fitted: tuple[FittedOperators, ...]
    _prices: dict[str, _Prices] = field(default_factory=dict, repr=False, compare=False)
    _processors: dict[str, ProcessorTimes] = field(default_factory=dict, repr=False, compare=False)
    _totals: dict[tuple[str, Operators], float] = field(
        default_factory=dict, repr=False, compare=False
    )

    @classmethod
    def fit(cls, table: OperatorTable, gpus: Mapping[str, Gpu]) -> OperatorTimes:
        """Constants from the rows of ``table`` on ``gpus``."""
        cpus = [gpu for gpu in gpus.values() if gpu.kind == CPU and gpu.name in table.gpu]
        others = {name: gpu for name, gpu in gpus.items() if gpu.kind != CPU}
        cells = [fit_cells(samples_of(table, {cpu.name: cpu})) for cpu in cpus]
        return cls((*fit_groups(samples_of(table, others)), *chain.from_iterable(cells)))

    def work(self, gpu: Gpu, operators: Sequence[TypedOperator]) -> Work:
        """The operators as arrays, as this GPU runs them."""
        return work_of(Engines(gpu) if gpu.kind == CPU else self._on(gpu).engines, operators)

    def seconds(self, gpu: Gpu, operators: Sequence[TypedOperator]) -> Floats:
        """Device seconds (n,) of ONE instance of each operator, without host launch gaps."""
        return self.price(gpu, self.work(gpu, operators)) if operators else np.zeros(0)

    def total_s(self, gpu: Gpu, operators: Operators) -> float:
        """Device seconds of all operators; kept, as every batch of a network has one update."""
        if (gpu.name, operators) not in self._totals:
            if len(self._totals) == MOST_TOTALS:
                self._totals.clear()
            self._totals[gpu.name, operators] = float(self.seconds(gpu, operators).sum())
        return self._totals[gpu.name, operators]

    def price(self, gpu: Gpu, work: Work) -> Floats:
        """As ``seconds``, of operators that ``work`` made arrays of."""
        if gpu.kind == CPU:
            return self._processor(gpu).seconds(work)
        return price(self._on(gpu).constants, work)

    def to_arrays(self) -> dict[str, list[object]]:
        """The fitted constants as JSON-able columns."""
        columns = {name: [getattr(f, name) for f in self.fitted] for name in _COLUMNS}
        columns["constants"] = [f.constants.tolist() for f in self.fitted]
        return columns | {"near": stored([f.near for f in self.fitted])}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Sequence[object]]) -> OperatorTimes:
        """The inverse of ``to_arrays``."""
        columns = [arrays[c] for c in _COLUMNS]
        near = arrays.get("near", [None] * len(columns[0]))
        return cls(tuple(_fitted(row) for row in zip(*columns, near, strict=True)))

    def constants(self, gpu: Gpu) -> Floats:
        """Constants of every slot on ``gpu``, (slots, p), as ``price`` takes them."""
        return self._on(gpu).constants

    def _processor(self, gpu: Gpu) -> ProcessorTimes:
        if gpu.name not in self._processors:
            own = [f for f in self.fitted if f.architecture == gpu.name]
            self._processors[gpu.name] = ProcessorTimes(own)
        return self._processors[gpu.name]

    def _on(self, gpu: Gpu) -> _Prices:
        if gpu.name not in self._prices:
            self._prices[gpu.name] = self._resolve(gpu)
        return self._prices[gpu.name]

    def _resolve(self, gpu: Gpu) -> _Prices:
        table = {(f.group, f.architecture): f for f in self.fitted}
        constants = np.zeros((len(KINDS) * SLOTS, _WIDEST))
        for group in groups():
            found = resolve(table, group, gpu)
            constants[group.slot, : len(found)] = found
        return _Prices(Engines(gpu), constants)


_COLUMNS = ("group", "architecture", "constants", "rows", "gpus", "sources")


def _fitted(row: Sequence[object]) -> FittedOperators:
    group, architecture, constants, rows, gpus, sources, near = row
    assert isinstance(gpus, Sequence)
    assert isinstance(sources, Sequence)
    return FittedOperators(
        group=str(group),
        architecture=str(architecture),
        constants=np.asarray(constants, dtype=float),
        rows=int(str(rows)),
        gpus=tuple(str(g) for g in gpus),
        sources=tuple(str(s) for s in sources),
        near=Neighbours.from_dict(near) if isinstance(near, Mapping) else None,
    )


def price(constants: Floats, work: Work) -> Floats:
    """Seconds (n,) of ``work`` with ``constants`` (slots, p) of its GPU."""
    formula = _FORMULA_OF[work.kind]
    slot = slots(work)
    seconds = np.empty(len(work))
    for code, law in enumerate(_FORMULAS):
        index = np.flatnonzero(formula == code)
        if not len(index):
            continue
        p = constants[slot[index], : len(law.constants)]
        seconds[index] = law.formula(p, work.take(index))
    return seconds


Table = Mapping[tuple[str, str], FittedOperators]

EFFICIENCY = 0  # index of the constant in every law
MISALIGNMENT = 7
HALF_RATE_TABLE = "sm86h"  # RTX 3090
# No table has a Kepler GPU. Libraries reach half the share of its peak that they reach on later
# ones: 29 % in ResNet-50 against 61 to 66 % on P100 and V100 (Gavel, tensorflow/benchmarks).
KEPLER = -0.65
LOAD_COST = 1


def resolve(table: Table, group: OperatorGroup, gpu: Gpu) -> Floats:
    """Constants (p,) for a group on a GPU.

    Own rows first, then the same group on other GPUs, then its stand-ins, then the prior.
    """
    for candidate in (group, *group.stand_ins):
        own = _own(table, candidate, gpu)
        if own is not None and (candidate == group or group.kind not in HEAVY):
            return own.constants
        pooled = own or table.get((candidate.name, POOLED))
        if pooled is not None:
            constants = _rescaled(table, group, candidate, pooled, gpu)
            if gpu.architecture == "kepler":
                constants[EFFICIENCY] += KEPLER
            return constants
    return group.law.prior


def _own(table: Table, group: OperatorGroup, gpu: Gpu) -> FittedOperators | None:
    """Of cards that are fed alike, else of one instruction set; half-rate cores share all over."""
    name, others = silicon_of(gpu), [architecture_of(gpu), f"{architecture_of(gpu)}h"]
    if group.kind in HEAVY and group.part != CORES:
        others = [HALF_RATE_TABLE] if name.endswith("h") else others[:1]
    return next(filter(None, (table.get((group.name, n)) for n in (name, *others))), None)


def _rescaled(
    table: Table, group: OperatorGroup, candidate: OperatorGroup, pooled: FittedOperators, gpu: Gpu
) -> Floats:
    """Tensor and matrix work follows the ratio of GEMM efficiencies at its own format."""
    constants = pooled.constants.copy()
    target = _own(table, OperatorGroup(Kind.GEMM, group.part), gpu)
    origin = table.get((OperatorGroup(Kind.GEMM, candidate.part).name, pooled.architecture))
    if group.kind not in HEAVY or target is None or origin is None or group.kind is Kind.GEMM:
        return constants
    constants[EFFICIENCY] += _gemm_efficiency(target) - _gemm_efficiency(origin)
    if group.kind in (Kind.CONV, Kind.BATCHED_GEMM):
        constants[MISALIGNMENT] = target.constants[MISALIGNMENT]
    return constants


def _gemm_efficiency(gemm: FittedOperators) -> float:
    """Logarithm of the share of peak a large GEMM reaches."""
    loads = np.exp(gemm.constants[LOAD_COST])
    return float(gemm.constants[EFFICIENCY] - np.log1p(loads))
