"""The covariance: a sum of terms, each "same categories AND near in these numbers".

A term with categories only is hierarchical shrinkage (an offset per model, per model and
framework, ...); numbers make the offset vary smoothly. Distances are exponential in the sum of
absolute differences (Ornstein-Uhlenbeck), so measured curves may bend. ``options`` stands for
the number of differing option columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from profiles.storage import shipped_yaml

from .features import CATEGORIES, NUMBERS, EncodedRows, Vocabulary

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Rows = NDArray[np.intp]

OPTIONS = "options"  # the number of option columns in which two rows differ
DISTANCES = (*NUMBERS, OPTIONS)


@dataclass(frozen=True, slots=True)
class KernelTerm:
    """One product of the covariance: the same ``categories``, near in each of ``scales``."""

    categories: tuple[str, ...]
    scales: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Readable and unique: categories, then what it is smooth in."""
        return "*".join(self.categories) + ("~" + ",".join(self.scales) if self.scales else "")

    @property
    def numbers(self) -> tuple[str, ...]:
        """The scales that are numbers of a row."""
        return tuple(name for name in self.scales if name != OPTIONS)


TERMS = tuple(
    KernelTerm(tuple(same), tuple(near))
    for same, near in shipped_yaml("terms.yaml", __file__)["terms"]
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

    def noise_of(self, vocabulary: Vocabulary, table: EncodedRows) -> Floats:
        """Standard deviation of the measurement of each row, (n,)."""
        factors = np.array([self.noise_by_source.get(s, 1.0) for s in vocabulary.sources] or [1.0])
        code = table.column("source")
        return self.noise * np.where(code < 0, 1.0, factors[np.maximum(code, 0)])

    @property
    def prior_variance(self) -> float:
        """Variance of the residual of a job about which nothing is known."""
        return float(sum(d * d for d in self.deviations.values()))


def blocks(term: KernelTerm, table: EncodedRows) -> Iterator[Rows]:
    """Row sets within which a term is not zero; rows with an unknown category are in none."""
    code = table.code(term.categories)
    order = np.argsort(code, kind="stable")
    cuts = np.flatnonzero(np.diff(code[order])) + 1
    for rows in np.split(order, cuts):
        if len(rows) and code[rows[0]] >= 0:
            yield rows


def distance(name: str, left: EncodedRows, right: EncodedRows) -> Singles:
    """How far apart rows are in a number, or in how many ``options`` they differ, (left, right).

    In single precision: the exponentials dominate the time of a fit, and the noise on the
    diagonal is a thousand times their rounding.
    """
    if name == OPTIONS:
        return left.option_distance(right)
    column = NUMBERS.index(name)
    a = left.numbers[:, column, None].astype(np.float32)
    b = right.numbers[None, :, column].astype(np.float32)
    return np.asarray(np.abs(a - b))


def covariance(table: EncodedRows, hyper: Hyperparameters, chunk: int = 1024) -> Floats:
    """Covariance of all rows with each other, (n, n)."""
    total = np.zeros((len(table), len(table)))
    for term in TERMS:
        for rows in blocks(term, table):
            right = table.take(rows)
            for start in range(0, len(rows), chunk):
                part = rows[start : start + chunk]
                left = table.take(part)
                exponent: Singles | np.float32 = np.float32(0.0)
                for name in term.scales:
                    rate = np.float32(1.0 / hyper.scales[term.name][name])
                    exponent = exponent - distance(name, left, right) * rate
                variance = np.float32(hyper.deviations[term.name] ** 2)
                total[np.ix_(part, rows)] += variance * np.exp(exponent)
    return total


class CrossCovariance:
    """Covariance of new rows with the fitted ones, looking only at rows that share categories."""

    def __init__(self, table: EncodedRows, hyper: Hyperparameters) -> None:
        self._table, self._hyper = table, hyper
        self._terms = [_FittedTerm(term, table, hyper) for term in TERMS]
        self._codes = np.array([table.code(term.categories) for term in TERMS])
        self._variances = np.array([hyper.deviations[t.name] ** 2 for t in TERMS], dtype=np.float32)
        self._rates = np.array(
            [
                [-1 / hyper.scales[t.name][name] if name in t.scales else 0 for name in DISTANCES]
                for t in TERMS
            ],
            dtype=np.float32,
        )
        self._options = np.ascontiguousarray(table.options.T, dtype=np.float32)
        self._sums = self._options.sum(axis=0)

    def __call__(self, new: EncodedRows) -> Floats:
        """(new rows, fitted rows)."""
        total = np.zeros((len(new), len(self._table)))
        for row, codes in enumerate(new.codes.tolist()):
            on = np.flatnonzero(new.options[row])
            apart = self._sums + (len(on) - 2 * self._options[on].sum(axis=0))  # in options
            for term in self._terms:
                term.add_covariance(codes, new.numbers[row], apart, total[row])
        return total

    def among(self, rows: Rows) -> Floats:
        """Covariance of some fitted rows with each other, (rows, rows)."""
        part, codes = self._table.take(rows), self._codes[:, rows]
        numbers = np.ascontiguousarray(part.numbers.T, dtype=np.float32)
        apart = np.concatenate(
            (np.abs(numbers[:, :, None] - numbers[:, None, :]), part.option_distance(part)[None])
        )
        each = np.exp(self._rates @ apart.reshape(len(apart), -1))
        each *= (codes[:, :, None] == codes[:, None, :]).reshape(each.shape).astype(np.float32)
        total = np.dot(self._variances[None], each).reshape(apart.shape[1:])
        return np.asarray(total, dtype=np.float64)


class _FittedTerm:
    """A term with the fitted rows by the codes of its categories, and one code of each row."""

    def __init__(self, term: KernelTerm, table: EncodedRows, hyper: Hyperparameters) -> None:
        scales = hyper.scales.get(term.name, {})
        self._variance = np.float32(hyper.deviations[term.name] ** 2)
        self._columns = [CATEGORIES.index(name) for name in term.categories]
        self._numbers = [NUMBERS.index(name) for name in term.numbers]
        self._rates = np.array([1.0 / scales[name] for name in term.numbers])
        self._option_rate = np.float32(1.0 / scales[OPTIONS] if OPTIONS in term.scales else 0.0)
        self._members = {
            tuple(table.codes[rows[0], self._columns].tolist()): np.sort(rows)
            for rows in blocks(term, table)
        }
        self._table = table
        self._scaled: dict[tuple[int, ...], Singles] = {}

    def add_covariance(
        self, codes: Sequence[int], numbers: Floats, options: Singles, total: Floats
    ) -> None:
        """Add that of one row with the fitted rows of its categories: it decays with distance."""
        key = tuple(codes[column] for column in self._columns)
        rows = self._members.get(key)
        if rows is None:
            return
        own = (numbers[self._numbers] * self._rates).astype(np.float32)
        apart = self._scaled_of(key, rows) - own[:, None]
        distance = np.abs(apart, out=apart).sum(axis=0)
        if self._option_rate:
            distance += options[rows] * self._option_rate
        total[rows] += np.exp(-distance) * self._variance

    def _scaled_of(self, key: tuple[int, ...], rows: Rows) -> Singles:
        """Numbers of fitted rows in units of their length scales, (numbers, rows); kept."""
        known = self._scaled.get(key)
        if known is None:
            scaled = (self._table.numbers[rows][:, self._numbers] * self._rates).T
            known = self._scaled[key] = np.ascontiguousarray(scaled, dtype=np.float32)
        return known
