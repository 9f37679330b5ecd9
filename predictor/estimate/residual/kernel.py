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


TERMS = (
    # what software loses on a mix of work: at a site, for a kind of network, on a GPU, in general
    Term(("source",), PHYSICS),
    Term(("group",), PHYSICS),
    Term(("architecture",), PHYSICS),
    Term(("framework",), PHYSICS),
    # a framework's era, its ways to run a precision, its optimizers
    Term(("framework",), ("date",)),
    Term(("framework", "precision"), (), True),
    Term(("optimizer", "framework")),
    # a site's network between GPUs
    Term(("source",), ("gpus", "nodes")),
    Term(("source", "framework", "group"), ("split", "accum", "nodes")),
    # one implementation of a model, then that of one site, then one configuration of it
    Term(("model", "framework"), (), True),
    Term(("source", "model", "framework"), ("date",), True),
    Term(
        ("source", "model", "framework", "precision", "variant"),
        ("batch", "gpus", "seq", "date"),
        True,
    ),
)


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """Standard deviation of each term and length scale of each of its numbers, in ln units.

    ``noise`` is the standard deviation of one measurement, ``noise_by_source`` a factor on it (1
    where nothing was learned).
    """

    deviations: dict[str, float]
    scales: dict[str, dict[str, float]]
    noise: float
    noise_by_source: dict[str, float] = field(default_factory=dict)

    @classmethod
    def initial(cls) -> Hyperparameters:
        """Where learning starts: every term alike."""
        return cls(
            {t.name: 0.15 for t in TERMS},
            {t.name: {s: START_SCALES[s] for s in t.scales} for t in TERMS if t.scales},
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


START_SCALES = (
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
        yield "options", left.option_distance(right)


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
        self._options = np.ascontiguousarray(table.options.T, dtype=np.float32)
        self._parts = [_Part(term, table, hyper) for term in TERMS]

    def __call__(self, new: Table) -> Floats:
        """(new rows, fitted rows)."""
        total = np.zeros((len(new), len(self._table)))
        for row in range(len(new)):
            self._add(new.codes[row], new.numbers[row], new.options[row], total[row])
        return total

    def among(self, rows: Rows) -> Floats:
        """Covariance of some fitted rows with each other, (rows, rows)."""
        part = self._table.take(rows)
        apart = part.option_distance(part)
        total = np.zeros((len(rows), len(rows)))
        for one in self._parts:
            total += one.among(part, apart)
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
        """Number of options in which the fitted rows differ from one, (n,)."""
        on = np.flatnonzero(options)
        return np.asarray(self._sums + (len(on) - 2 * self._options[on].sum(axis=0)))

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

    def among(self, part: Table, options: Singles) -> Singles:
        """Covariance of this term between all pairs of some fitted rows."""
        codes = part.codes[:, self.columns]
        same = (codes[:, None, :] == codes[None, :, :]).all(axis=2)
        exponent = np.zeros(same.shape, dtype=np.float32)
        for column, rate in zip(self.numbers, self.rates, strict=True):
            scaled = (part.numbers[:, column] * rate).astype(np.float32)
            exponent -= np.abs(scaled[:, None] - scaled[None, :])
        if self.option_rate is not None:
            exponent -= options * self.option_rate
        return np.asarray(np.where(same, np.exp(exponent) * self.variance, np.float32(0.0)))

    def _scaled_like(self, rows: Rows | slice, codes: Sequence[int]) -> Singles:
        """Numbers of fitted rows in units of their length scales, (numbers, rows); kept."""
        key = tuple(codes[c] for c in self.columns)
        known = self._scaled.get(key)
        if known is None:
            scaled = (self._table.numbers[rows][:, self.numbers] * self.rates).T
            known = self._scaled[key] = np.ascontiguousarray(scaled, dtype=np.float32)
        return known
