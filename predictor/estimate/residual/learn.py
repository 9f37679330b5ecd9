"""Learns the hyper-parameters of the covariance: minutes, once per data release.

First Adam on the marginal likelihood with log-normal priors (Rasmussen & Williams, eq. 5.9), then
on the mean absolute error of leaving out groups: single rows for known configurations, whole
models and sources in turn for novel ones. Each step sees a fresh random subset of whole tables.
Every objective reduces to one matrix, its derivative by the covariance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .features import Table, Vocabulary
from .kernel import _START, TERMS, Floats, Hyperparameters, Rows, Slope, covariance, gradient
from .novelty import groups
from .process import Conditioned, condition

# Prior of a term's deviation (median, spread in ln); spread in ln of a length scale around its
# start, and of the weight of an option around 1.
DEVIATION_PRIOR = (0.08, 1.0)
SCALE_SPREAD = 0.7
OPTION_SPREAD = 1.0
NOISE_SPREAD = 0.7
TABLE_ROWS = 250

LIKELIHOOD, LEAVE_OUT = "marginal likelihood", "leave-out error"


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long to learn: Adam steps of each objective, rows of each subset, step size.

    ``leave_out`` are the keys of the groups left out together, one after the other; an empty key
    is single rows.
    """

    likelihood_steps: int
    leave_out_steps: int
    leave_out: tuple[tuple[str, ...], ...]
    rows: int = 1500
    rate: float = 0.12
    seed: int = 0


# One set for configurations that were measured, one for new models and new sites.
KNOWN_SCHEDULE = Schedule(likelihood_steps=60, leave_out_steps=50, leave_out=((),), rows=1800)
NOVEL_SCHEDULE = Schedule(
    likelihood_steps=20, leave_out_steps=60, leave_out=(("model",), ("source",))
)


def learn(
    table: Table,
    vocabulary: Vocabulary,
    targets: Floats,
    schedule: Schedule,
    progress: Callable[[str, float], None] = lambda _stage, _value: None,
    start: Hyperparameters | None = None,
) -> Hyperparameters:
    """Hyper-parameters that explain ``targets`` (n,) best; ``progress`` gets stage and loss.

    ``vocabulary`` is the one the table was encoded with.
    """
    vector = _Vector(vocabulary.options, vocabulary.sources)
    theta = vector.pack(start or Hyperparameters.initial())
    subsets = _subsets(table, schedule)
    for stage, steps in (
        (LIKELIHOOD, schedule.likelihood_steps),
        (LEAVE_OUT, schedule.leave_out_steps),
    ):
        rate = schedule.rate if stage == LIKELIHOOD else schedule.rate / 2
        adam = _Adam(len(theta), rate)
        for step in range(steps):
            rows = next(subsets)
            hyper = vector.unpack(theta)
            part, y = replace(table.take(rows), weights=vector.weights(theta)), targets[rows]
            fitted = condition(covariance(part, hyper), y, hyper.noise_of(vocabulary, part))
            if stage == LIKELIHOOD:
                loss, weight = _likelihood(fitted, y)
            else:
                key = schedule.leave_out[step % len(schedule.leave_out)]
                loss, weight = _leave_out(fitted, y, _groups(part, key))
            slope = vector.slope(gradient(part, hyper, weight), fitted, weight, part)
            slope += vector.prior_slope(theta) / len(table)
            theta = theta - adam.step(slope)
            progress(stage, loss)
    return vector.unpack(theta)


def _subsets(table: Table, schedule: Schedule) -> Iterator[Rows]:
    """Whole tables (one source and model) at random until there are enough rows.

    So a subset is as dense around each of its rows as the data are; no table brings more than
    TABLE_ROWS of them.
    """
    rng = np.random.default_rng(schedule.seed)
    tables = groups(table, ("source", "model"))
    while True:
        chosen: list[Rows] = []
        for i in rng.permutation(len(tables)):
            chosen.append(rng.permutation(tables[i])[:TABLE_ROWS])
            if sum(map(len, chosen)) >= schedule.rows:
                break
        yield np.sort(np.concatenate(chosen)[: schedule.rows])


def _groups(part: Table, key: tuple[str, ...]) -> list[Rows]:
    return groups(part, key) if key else [np.array([i]) for i in range(len(part))]


def _likelihood(fitted: Conditioned, targets: Floats) -> tuple[float, Floats]:
    """Negative log marginal likelihood per row, and its derivative by the covariance."""
    n = len(targets)
    _, log_determinant = np.linalg.slogdet(fitted.inverse)
    value = 0.5 * float((targets - fitted.mean) @ fitted.alpha) - 0.5 * float(log_determinant)
    weight = 0.5 * (fitted.inverse - np.outer(fitted.alpha, fitted.alpha)) / n
    return value / n, weight


def _leave_out(fitted: Conditioned, targets: Floats, parts: Sequence[Rows]) -> tuple[float, Floats]:
    """Mean absolute error of leaving groups out, and its derivative by the covariance.

    With B the block of the inverse of a group, its error is r = B^-1 alpha. The derivative of
    sum |r| follows from d inverse = -inverse dK inverse.
    """
    n = len(targets)
    residual, direction = np.zeros(n), np.zeros(n)
    for rows in parts:
        block = fitted.inverse[np.ix_(rows, rows)]
        residual[rows] = np.linalg.solve(block, fitted.alpha[rows])
        direction[rows] = np.linalg.solve(block, np.sign(residual[rows]) / n)
    member = np.zeros(n, dtype=np.intp)
    for i, rows in enumerate(parts):
        member[rows] = i
    one = np.zeros((n, len(parts)))
    one[np.arange(n), member] = 1.0
    left = fitted.inverse @ (one * direction[:, None])
    right = fitted.inverse @ (one * residual[:, None])
    weight = left @ right.T - np.outer(fitted.inverse @ direction, fitted.alpha)
    return float(np.abs(residual).mean()), 0.5 * (weight + weight.T)


class _Vector:
    """Hyper-parameters as logarithms: deviations, scales, options, noise by source, noise."""

    def __init__(self, options: Sequence[str], sources: Sequence[str]) -> None:
        self._sources = list(sources)
        self._deviations = [t.name for t in TERMS]
        self._scales = [(t.name, s) for t in TERMS for s in t.scales]
        self._options = list(options)

    def pack(self, hyper: Hyperparameters) -> Floats:
        deviations = [hyper.deviations[t] for t in self._deviations]
        scales = [hyper.scales[t][s] for t, s in self._scales]
        options = [hyper.options.get(o, 1.0) for o in self._options]
        sources = [hyper.noise_by_source.get(s, 1.0) for s in self._sources]
        return np.log([*deviations, *scales, *options, *sources, hyper.noise])

    def unpack(self, theta: Floats) -> Hyperparameters:
        deviations, scales, options, sources, noise = self._split(np.exp(theta))
        by_term: dict[str, dict[str, float]] = {}
        for (term, scale), value in zip(self._scales, scales, strict=True):
            by_term.setdefault(term, {})[scale] = float(value)
        return Hyperparameters(
            dict(zip(self._deviations, deviations.tolist(), strict=True)),
            by_term,
            float(noise[0]),
            dict(zip(self._options, options.tolist(), strict=True)),
            dict(zip(self._sources, sources.tolist(), strict=True)),
        )

    def weights(self, theta: Floats) -> Floats:
        """Weights of the option columns."""
        return np.asarray(np.exp(self._split(theta)[2]))

    def slope(self, sums: Slope, fitted: Conditioned, weight: Floats, part: Table) -> Floats:
        deviations = [sums.deviations[t] for t in self._deviations]
        scales = [sums.scales[t][s] for t, s in self._scales]
        noise = 2.0 * np.diag(weight) * fitted.noise
        by_source = np.bincount(part.column("source"), noise, len(self._sources))
        return np.array([*deviations, *scales, *sums.options, *by_source, noise.sum()])

    def prior_slope(self, theta: Floats) -> Floats:
        """Slope of the negative log prior; the noise has a flat one."""
        deviations, scales, options, sources, _ = self._split(theta)
        median, spread = DEVIATION_PRIOR
        starts = np.log([_START[s] for _, s in self._scales])
        return np.concatenate(
            [
                (deviations - np.log(median)) / spread**2,
                (scales - starts) / SCALE_SPREAD**2,
                options / OPTION_SPREAD**2,
                sources / NOISE_SPREAD**2,
                [0.0],
            ]
        )

    def _split(self, vector: Floats) -> list[Floats]:
        parts = (self._deviations, self._scales, self._options, self._sources)
        return np.split(vector, np.cumsum([len(part) for part in parts]))


class _Adam:
    """Kingma & Ba, arXiv 1412.6980, with its default decay rates."""

    def __init__(self, size: int, rate: float) -> None:
        self._rate = rate
        self._first = np.zeros(size)
        self._second = np.zeros(size)
        self._count = 0

    def step(self, slope: Floats) -> Floats:
        self._count += 1
        self._first = 0.9 * self._first + 0.1 * slope
        self._second = 0.999 * self._second + 0.001 * slope**2
        first = self._first / (1 - 0.9**self._count)
        second = self._second / (1 - 0.999**self._count)
        return self._rate * first / (np.sqrt(second) + 1e-12)
