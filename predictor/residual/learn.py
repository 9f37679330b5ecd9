"""Learns the hyper-parameters of the covariance: minutes, once per data release.

First Adam on the marginal likelihood with log-normal priors (Rasmussen & Williams, eq. 5.9), then
on the mean absolute leave-one-out residual (eq. 5.10 ff.). Each step sees a fresh random subset.
Both objectives reduce to one matrix, the derivative by the covariance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .features import Table
from .kernel import _START, TERMS, Floats, Hyperparameters, Slope, covariance, gradient
from .process import Conditioned, condition

# Prior of a term's deviation (median, spread in ln); spread in ln of a length scale around its
# start, and of the weight of an option around 1.
DEVIATION_PRIOR = (0.08, 1.0)
SCALE_SPREAD = 0.7
OPTION_SPREAD = 1.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long to learn: Adam steps of each objective, rows of each subset, step size."""

    likelihood_steps: int = 40
    leave_one_out_steps: int = 20
    rows: int = 1500
    rate: float = 0.12
    seed: int = 0


def learn(
    table: Table,
    options: Sequence[str],
    targets: Floats,
    schedule: Schedule,
    progress: Callable[[str, float], None] = lambda _stage, _value: None,
    start: Hyperparameters | None = None,
) -> Hyperparameters:
    """Hyper-parameters that explain ``targets`` (n,) best; ``progress`` gets stage and loss.

    ``options`` name the option columns of the table.
    """
    vector = _Vector(options)
    theta = vector.pack(start or Hyperparameters.initial())
    for stage, steps, objective in (
        ("marginal likelihood", schedule.likelihood_steps, _likelihood),
        ("leave-one-out error", schedule.leave_one_out_steps, _leave_one_out),
    ):
        subsets = _subsets(len(table), schedule)
        adam = _Adam(len(theta), schedule.rate if objective is _likelihood else schedule.rate / 2)
        for _ in range(steps):
            rows = next(subsets)
            hyper = vector.unpack(theta)
            part, y = replace(table.take(rows), weights=vector.weights(theta)), targets[rows]
            fitted = condition(covariance(part, hyper), y, hyper)
            loss, weight = objective(fitted, y)
            slope = vector.slope(gradient(part, hyper, weight), fitted, weight)
            if objective is _likelihood:
                slope += vector.prior_slope(theta) / len(rows)
            theta = theta - adam.step(slope)
            progress(stage, loss)
    return vector.unpack(theta)


def _subsets(n: int, schedule: Schedule) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(schedule.seed)
    while True:
        yield np.sort(rng.choice(n, size=min(schedule.rows, n), replace=False))


def _likelihood(fitted: Conditioned, targets: Floats) -> tuple[float, Floats]:
    """Negative log marginal likelihood per row, and its derivative by the covariance."""
    n = len(targets)
    sign, log_determinant = np.linalg.slogdet(fitted.inverse)
    value = 0.5 * float((targets - fitted.mean) @ fitted.alpha) - 0.5 * float(log_determinant)
    weight = 0.5 * (fitted.inverse - np.outer(fitted.alpha, fitted.alpha)) / n
    return value / n, weight


def _leave_one_out(fitted: Conditioned, targets: Floats) -> tuple[float, Floats]:
    """Mean absolute leave-one-out residual, and its derivative by the covariance."""
    n = len(targets)
    diagonal = np.diag(fitted.inverse)
    residual = fitted.alpha / diagonal
    sign = np.sign(residual) / n
    direct = fitted.inverse @ (sign / diagonal)
    outer = np.outer(direct, fitted.alpha)
    spread = sign * fitted.alpha / diagonal**2
    weight = (fitted.inverse * spread) @ fitted.inverse - 0.5 * (outer + outer.T)
    return float(np.abs(residual).mean()), weight


class _Vector:
    """Hyper-parameters as one vector of logarithms: deviations, scales, options, noise."""

    def __init__(self, options: Sequence[str]) -> None:
        self._deviations = [t.name for t in TERMS]
        self._scales = [(t.name, s) for t in TERMS for s in t.scales]
        self._options = list(options)

    def pack(self, hyper: Hyperparameters) -> Floats:
        deviations = [hyper.deviations[t] for t in self._deviations]
        scales = [hyper.scales[t][s] for t, s in self._scales]
        options = [hyper.options.get(o, 1.0) for o in self._options]
        return np.log([*deviations, *scales, *options, hyper.noise])

    def unpack(self, theta: Floats) -> Hyperparameters:
        deviations, scales, options, noise = self._split(np.exp(theta))
        by_term: dict[str, dict[str, float]] = {}
        for (term, scale), value in zip(self._scales, scales, strict=True):
            by_term.setdefault(term, {})[scale] = float(value)
        return Hyperparameters(
            dict(zip(self._deviations, deviations.tolist(), strict=True)),
            by_term,
            float(noise[0]),
            dict(zip(self._options, options.tolist(), strict=True)),
        )

    def weights(self, theta: Floats) -> Floats:
        """Weights of the option columns."""
        return np.asarray(np.exp(self._split(theta)[2]))

    def slope(self, sums: Slope, fitted: Conditioned, weight: Floats) -> Floats:
        deviations = [sums.deviations[t] for t in self._deviations]
        scales = [sums.scales[t][s] for t, s in self._scales]
        noise = 2.0 * float(np.diag(weight) @ fitted.noise)
        return np.array([*deviations, *scales, *sums.options, noise])

    def prior_slope(self, theta: Floats) -> Floats:
        """Slope of the negative log prior; the noise has a flat one."""
        deviations, scales, options, _ = self._split(theta)
        median, spread = DEVIATION_PRIOR
        starts = np.log([_START[s] for _, s in self._scales])
        return np.concatenate(
            [
                (deviations - np.log(median)) / spread**2,
                (scales - starts) / SCALE_SPREAD**2,
                options / OPTION_SPREAD**2,
                [0.0],
            ]
        )

    def _split(self, vector: Floats) -> list[Floats]:
        ends = np.cumsum([len(self._deviations), len(self._scales), len(self._options)])
        return np.split(vector, ends)


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
