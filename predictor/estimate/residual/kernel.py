"""The covariance: a sum of terms, each "same categories AND near in these numbers".

A term with categories only is hierarchical shrinkage (an offset per model, per model and
framework, ...); numbers make the offset vary smoothly. Distances are exponential in the sum of
absolute differences (Ornstein-Uhlenbeck), so measured curves may bend. ``options`` stands for
the number of differing option columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .features import CATEGORIES, NUMBERS, Table, Vocabulary

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Rows = NDArray[np.intp]

PHYSICS = ("host", "tensor", "matmul", "memory", "recurrent", "exposed", "update")


@dataclass(frozen=True, slots=True)
class Term:
    """One product of the covariance."""

    categories: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    options: bool = False

    @property
    def name(self) -> str:
        """Readable and unique: categories, then what it is smooth in."""
        smooth = (*self.numbers, *(("options",) if self.options else ()))
        return "*".join(self.categories or ("all",)) + ("~" + ",".join(smooth) if smooth else "")

    @property
    def scales(self) -> tuple[str, ...]:
        """Names of the length scales of this term."""
        return (*self.numbers, *(("options",) if self.options else ()))


def _terms() -> tuple[Term, ...]:
    t = Term
    return (
        # physics alone: what software loses on this mix of work
        t((), PHYSICS),
        t((), ("host", "step")),
        t((), ("gpus", "nodes", "exposed")),
        t((), ("peak", "bandwidth", "intensity")),
        t(("precision",), PHYSICS),
        t(("architecture",), PHYSICS),
        t(("framework",), PHYSICS),
        t(("precision", "architecture")),
        t(("engine", "group")),
        t(("architecture", "engine", "group")),
        t(("group",), PHYSICS),
        t(("group",), ("gpus", "nodes")),
        t(("group",), ("parameters", "step")),
        # framework and its era
        t(("framework",)),
        t(("framework",), ("date",)),
        t(("framework", "group")),
        t(("framework",), ("gpus", "nodes")),
        t(("framework",), ("host",)),
        t(("framework", "precision"), (), True),
        t(("framework", "precision", "architecture")),
        t(("framework", "sharding"), ("split", "gpus")),
        t(("optimizer", "framework")),
        # model
        t(("model",)),
        t(("model",), ("batch", "host")),
        t(("model",), ("gpus", "nodes")),
        t(("model", "variant", "task"), ("seq", "pixels")),
        t(("model", "task"), ("parameters",)),
        t(("model", "precision")),
        t(("model", "architecture")),
        t(("model", "gpu")),
        t(("model", "architecture", "precision"), ("batch",)),
        t(("model", "framework")),
        t(("model", "framework"), ("date",)),
        t(("model", "framework"), (), True),
        t(("model", "framework", "precision"), ("date",)),
        t(("model", "framework", "architecture", "precision")),
        t(("model", "framework"), ("gpus", "nodes", "batch")),
        t(("model",), PHYSICS),
        # site
        t(("source",)),
        t(("source", "group")),
        t(("source", "model")),
        t(("source", "framework", "gpu")),
        t(("source", "precision", "architecture")),
        t(("source",), ("gpus", "nodes")),
        t(("source",), PHYSICS),
        t(("source", "framework", "gpu", "model")),
        t(("source", "model", "framework"), ("date",), True),
        t(("source", "gpu", "precision", "group")),
        t(("source", "model", "framework", "gpu", "precision"), ("gpus", "accum")),
        t(
            ("source", "model", "framework", "precision", "variant"),
            ("batch", "gpus", "seq", "date"),
            True,
        ),
        t(("source", "framework", "group"), ("split", "accum", "nodes")),
        t(("source", "model", "variant"), ("split", "gpus", "accum", "batch", "seq")),
    )


TERMS = _terms()


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """Standard deviation of each term and length scale of each of its numbers, in ln units.

    ``noise`` is the standard deviation of one measurement; ``options`` how far apart two runs are
    that differ in one option, ``noise_by_source`` a factor on the noise (1 where nothing was
    learned).
    """

    deviations: dict[str, float]
    scales: dict[str, dict[str, float]]
    noise: float
    options: dict[str, float] = field(default_factory=dict)
    noise_by_source: dict[str, float] = field(default_factory=dict)

    @classmethod
    def initial(cls) -> Hyperparameters:
        """Where learning starts: every term alike."""
        return cls(
            {t.name: 0.15 for t in TERMS},
            {t.name: {s: _START[s] for s in t.scales} for t in TERMS if t.scales},
            0.05,
        )

    def noise_of(self, vocabulary: Vocabulary, table: Table) -> Floats:
        """Standard deviation of the measurement of each row, (n,)."""
        factors = np.array([self.noise_by_source.get(s, 1.0) for s in vocabulary.sources] or [1.0])
        code = table.column("source")
        return self.noise * np.where(code < 0, 1.0, factors[np.maximum(code, 0)])

    @property
    def prior_variance(self) -> float:
        """Variance of the residual of a job about which nothing is known."""
        return float(sum(d * d for d in self.deviations.values()))


_START = (
    dict.fromkeys(NUMBERS, 2.0)
    | dict.fromkeys(PHYSICS, 1.0)
    | {"date": 3.0, "options": 4.0, "step": 3.0, "peak": 2.0, "bandwidth": 2.0, "intensity": 1.5}
)


def blocks(term: Term, table: Table) -> Iterator[Rows]:
    """Row sets within which a term is not zero; rows with an unknown category are in none."""
    if not term.categories:
        yield np.arange(len(table))
        return
    code = table.code(term.categories)
    order = np.argsort(code, kind="stable")
    cuts = np.flatnonzero(np.diff(code[order])) + 1
    for rows in np.split(order, cuts):
        if len(rows) and code[rows[0]] >= 0:
            yield rows


def distances(term: Term, left: Table, right: Table) -> Iterator[tuple[str, Singles]]:
    """Absolute differences (left rows x right rows) per length scale of a term.

    In single precision: the exponentials dominate the time of a fit, and the noise on the
    diagonal is a thousand times their rounding.
    """
    for name in term.numbers:
        column = NUMBERS.index(name)
        a = left.numbers[:, column, None].astype(np.float32)
        b = right.numbers[None, :, column].astype(np.float32)
        yield name, np.abs(a - b)
    if term.options:
        yield "options", left.option_distance(right).astype(np.float32)


def block_covariance(term: Term, hyper: Hyperparameters, left: Table, right: Table) -> Singles:
    """Covariance of one term between rows that share its categories."""
    variance = hyper.deviations[term.name] ** 2
    if not term.scales:
        return np.full((len(left), len(right)), variance, dtype=np.float32)
    scales = hyper.scales[term.name]
    total = np.zeros((len(left), len(right)), dtype=np.float32)
    for name, distance in distances(term, left, right):
        distance *= np.float32(1.0 / scales[name])
        total -= distance
    np.exp(total, out=total)
    total *= np.float32(variance)
    return total


def covariance(table: Table, hyper: Hyperparameters, chunk: int = 1024) -> Floats:
    """Covariance of all rows with each other, (n, n)."""
    n = len(table)
    total = np.zeros((n, n))
    for term in TERMS:
        for rows in blocks(term, table):
            right = table.take(rows)
            for start in range(0, len(rows), chunk):
                part = rows[start : start + chunk]
                block = block_covariance(term, hyper, table.take(part), right)
                if len(rows) == n and not term.categories:
                    total[start : start + chunk] += block
                else:
                    total[np.ix_(part, rows)] += block
    return total


class CrossCovariance:
    """Covariance of new rows with the fitted ones, looking only at rows that share categories."""

    def __init__(self, table: Table, hyper: Hyperparameters) -> None:
        self._table = table
        self._options = np.ascontiguousarray((table.options * table.weights).T, dtype=np.float32)
        self._parts = [_Part(term, table, hyper) for term in TERMS]

    def __call__(self, new: Table) -> Floats:
        """(new rows, fitted rows)."""
        total = np.zeros((len(new), len(self._table)))
        for row in range(len(new)):
            self._add(new.codes[row], new.numbers[row], new.options[row], total[row])
        return total

    def _add(
        self, codes: NDArray[np.int32], numbers: Floats, options: Singles, total: Floats
    ) -> None:
        apart = self._option_distance(options)
        plain = codes.tolist()
        for part in self._parts:
            rows = part.rows_like(plain)
            if rows is not None:
                total[rows] += part.covariance(rows, plain, numbers, apart)

    def _option_distance(self, options: Singles) -> Singles:
        """Weighted number of options in which the fitted rows differ from one, (n,)."""
        on = np.flatnonzero(options)
        shared = self._options[on].sum(axis=0)
        own = np.float32(self._table.weights[on].sum())
        return np.asarray(self._sums + (own - 2 * shared), dtype=np.float32)

    @cached_property
    def _sums(self) -> Singles:
        return np.asarray(self._options.sum(axis=0), dtype=np.float32)


class _Part:
    """A term with its fitted rows by the codes of its categories."""

    def __init__(self, term: Term, table: Table, hyper: Hyperparameters) -> None:
        scales = hyper.scales.get(term.name, {})
        self.variance = np.float32(hyper.deviations[term.name] ** 2)
        self.columns = [CATEGORIES.index(name) for name in term.categories]
        self.numbers = [NUMBERS.index(name) for name in term.numbers]
        self.rates = np.array([1.0 / scales[name] for name in term.numbers])
        self.option_rate = np.float32(1.0 / scales["options"]) if term.options else None
        self.members = {
            tuple(table.codes[rows[0], self.columns].tolist()): np.sort(rows)
            for rows in (blocks(term, table) if self.columns else ())
        }
        self._table = table
        self._scaled: dict[tuple[int, ...], Singles] = {}

    def rows_like(self, codes: Sequence[int]) -> Rows | slice | None:
        """Fitted rows of the same categories; all of them for a term without any."""
        if not self.columns:
            return slice(None)
        return self.members.get(tuple(codes[c] for c in self.columns))

    def covariance(
        self, rows: Rows | slice, codes: Sequence[int], numbers: Floats, options: Singles
    ) -> Singles | np.float32:
        """Covariance of one row with the fitted ``rows``: decays with the distance."""
        if not self.numbers and self.option_rate is None:
            return self.variance
        exponent: Singles = np.zeros(1, dtype=np.float32)
        if self.numbers:
            own = (numbers[self.numbers] * self.rates).astype(np.float32)
            distance = self._scaled_like(rows, codes) - own[:, None]
            exponent = -np.abs(distance, out=distance).sum(axis=0)
        if self.option_rate is not None:
            exponent = exponent - options[rows] * self.option_rate
        return np.asarray(np.exp(exponent) * self.variance)

    def _scaled_like(self, rows: Rows | slice, codes: Sequence[int]) -> Singles:
        """Numbers of fitted rows in units of their length scales, (numbers, rows); kept."""
        key = tuple(codes[c] for c in self.columns)
        known = self._scaled.get(key)
        if known is None:
            scaled = (self._table.numbers[rows][:, self.numbers] * self.rates).T
            known = self._scaled[key] = np.ascontiguousarray(scaled, dtype=np.float32)
        return known


@dataclass(frozen=True, slots=True)
class Slope:
    """Derivatives of an objective by the logarithm of each hyper-parameter."""

    deviations: dict[str, float]
    scales: dict[str, dict[str, float]]
    options: Floats


def gradient(table: Table, hyper: Hyperparameters, weight: Floats) -> Slope:
    """Chain rule: ``weight`` is the (n, n) derivative of an objective by the covariance."""
    deviations: dict[str, float] = {}
    scales: dict[str, dict[str, float]] = {}
    options = np.zeros(table.options.shape[1])
    for term in TERMS:
        deviation = 0.0
        scale = dict.fromkeys(term.scales, 0.0)
        for rows in blocks(term, table):
            part = table.take(rows)
            weighted = block_covariance(term, hyper, part, part) * weight[np.ix_(rows, rows)]
            deviation += 2.0 * float(weighted.sum())
            for name, distance in distances(term, part, part):
                scale[name] += float(np.vdot(weighted, distance)) / hyper.scales[term.name][name]
            if term.options:
                options -= _by_option(weighted, part) / hyper.scales[term.name]["options"]
        deviations[term.name] = deviation
        scales[term.name] = scale
    return Slope(deviations, scales, options)


def _by_option(weighted: Floats, part: Table) -> Floats:
    """Sum of ``weighted`` over the pairs that differ in each option, times its weight."""
    on = part.options.astype(np.float64)
    both = np.einsum("ij,ij->j", on, weighted @ on)
    either = weighted.sum(1) @ on + weighted.sum(0) @ on
    result: Floats = part.weights * (either - 2.0 * both)
    return result
