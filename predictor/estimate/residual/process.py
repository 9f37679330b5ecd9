"""Gaussian process with Student-t noise on the log residual, and its closed-form cross-validation.

Rasmussen & Williams, Gaussian Processes for Machine Learning, chapters 2 and 5.4.2. Outliers are
down-weighted by the Student-t weights of their own leave-one-out residuals (nu = 4).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from threadpoolctl import ThreadpoolController

from .features import EncodedRows, Vocabulary
from .kernel import CrossCovariance, Floats, Hyperparameters, Rows, covariance

DEGREES_OF_FREEDOM = 4.0
# Rows mirrored at a time from the lower triangle that LAPACK fills to the upper one.
MIRROR_ROWS = 512
# The variance of one prediction rests on this many fitted rows, those it is most correlated with
# (Vecchia 1988; Datta et al. 2016, nearest-neighbour Gaussian processes): no covariance is stored.
NEIGHBOURS = 48  # deviations are 0.5 % wider in the mean than with 64, at half the time
SYSTEMS = 64  # kept, 18 KiB each
JOINT_NEIGHBOURS = 1000  # of many predictions together


@dataclass(frozen=True, slots=True)
class Posterior:
    """Mean and standard deviation (noise of one measurement included) per row, in ln units."""

    mean: Floats
    deviation: Floats


@dataclass(frozen=True, slots=True)
class Conditioned:
    """A covariance conditioned on targets: what prediction and cross-validation need.

    ``noise`` is the variance each row was given, ``plain_noise`` that before robust weights.
    """

    inverse: Floats
    alpha: Floats
    noise: Floats
    plain_noise: Floats
    mean: float

    @property
    def weights(self) -> Floats:
        """Student-t weights: 1 for an ordinary row, towards 0 for an outlier."""
        return self.plain_noise / self.noise


def condition(
    covariance_: Floats, targets: Floats, noise_deviation: Floats, weights: Floats | None = None
) -> Conditioned:
    """Condition on ``targets`` (n,) with robust noise; ``covariance_`` is (n, n) without noise.

    ``noise_deviation`` (n,) is the standard deviation of each measurement, in ln units;
    ``weights`` (n,) are Student-t weights already known, else they are found here.
    """
    mean = float(np.median(targets))
    if weights is None:
        inverse = _inverse(covariance_, noise_deviation**2)
        squared = (inverse @ (targets - mean)) ** 2 / np.diag(inverse)
        weights = (DEGREES_OF_FREEDOM + 1) / (DEGREES_OF_FREEDOM + squared)
    noise = noise_deviation**2 / weights
    inverse = _inverse(covariance_, noise)
    alpha = inverse @ (targets - mean)
    return Conditioned(inverse, alpha, noise, noise_deviation**2, mean)


def _inverse(covariance_: Floats, noise: Floats) -> Floats:
    """Of covariance and noise, from the lower triangle."""
    from scipy.linalg import lapack

    system = np.array(covariance_, dtype=np.float64, order="F")
    system[np.diag_indices_from(system)] += noise
    factor, info = lapack.dpotrf(system, lower=1, overwrite_a=1, clean=0)
    if info:
        raise np.linalg.LinAlgError("the covariance is not positive definite")
    inverse: Floats = lapack.dpotri(factor, lower=1, overwrite_c=1)[0]
    for start in range(0, len(inverse), MIRROR_ROWS):
        end = start + MIRROR_ROWS
        block = np.tril(inverse[start:end, start:end])
        inverse[start:end, start:end] = block + np.tril(block, -1).T
        inverse[start:end, end:] = inverse[end:, start:end].T
    return inverse


def leave_out(
    fitted: Conditioned, targets: Floats, groups: Sequence[Rows], noise: float | None = None
) -> Posterior:
    """Predictions of each group from all other rows, exactly, without refitting.

    Rows in no group keep NaN. Robust weights stay those of the full fit. ``noise`` is the standard
    deviation of one measurement of a place whose own noise is not known; None is that of each row.
    """
    from scipy.linalg import cho_factor, cho_solve

    mean = np.full(len(targets), np.nan)
    deviation = np.full(len(targets), np.nan)
    for rows in groups:
        block = cho_factor(fitted.inverse[np.ix_(rows, rows)], lower=True)
        mean[rows] = targets[rows] - cho_solve(block, fitted.alpha[rows])
        variance = np.diag(cho_solve(block, np.eye(len(rows))))
        known = np.maximum(variance - fitted.noise[rows], 0.0)
        deviation[rows] = np.sqrt(known + (fitted.plain_noise[rows] if noise is None else noise**2))
    return Posterior(mean, deviation)


def alpha_without(fitted: Conditioned, rows: Rows) -> Floats:
    """The ``alpha`` of the same fit without some rows, zero at those."""
    block = np.linalg.solve(fitted.inverse[np.ix_(rows, rows)], fitted.alpha[rows])
    alpha: Floats = fitted.alpha - fitted.inverse[:, rows] @ block
    alpha[rows] = 0.0
    return alpha


def gains(shared: Floats, weights: Floats, noise: float | Floats) -> Floats:
    """How much the weighted variance of the first rows falls by a run of each row (n,).

    ``shared`` (n, n) is what is not known of all rows together, ``noise`` the deviation of a run.
    """
    fallen: Floats = weights @ shared[: len(weights)] ** 2 / (np.diag(shared) + noise**2)
    return fallen


def after_run(shared: Floats, at: int, noise: float) -> Floats:
    """What is not known of all rows once the row ``at`` was run."""
    column = shared[:, at]
    left: Floats = shared - np.outer(column, column) / (column[at] + noise**2)
    return left


@dataclass(eq=False)
class GaussianProcess:
    """A fitted process ready to predict new rows."""

    table: EncodedRows
    hyper: Hyperparameters
    alpha: Floats
    noise: Floats
    mean: float

    def __post_init__(self) -> None:
        self.cross = CrossCovariance(self.table, self.hyper)
        self._system = lru_cache(SYSTEMS)(self._system_of)

    @classmethod
    def fit(
        cls,
        vocabulary: Vocabulary,
        table: EncodedRows,
        targets: Floats,
        hyper: Hyperparameters,
        weights: Floats | None = None,
    ) -> tuple[GaussianProcess, Conditioned]:
        """Fit to ``targets`` (n,); ``weights`` and the second result as in ``condition``."""
        matrix = covariance(table, hyper)
        fitted = condition(matrix, targets, hyper.noise_of(vocabulary, table), weights)
        return cls(table, hyper, fitted.alpha, fitted.noise, fitted.mean), fitted

    def predict(self, new: EncodedRows, noise_deviation: Floats) -> Posterior:
        """Mean and deviation of each new row; the deviation rests on its nearest fitted rows."""
        with one_thread():
            cross = self.cross(new)
            mean = self.mean + cross @ self.alpha
            variance = np.array([self._variance(row) for row in cross])
        return Posterior(mean, np.sqrt(variance + noise_deviation**2))

    def joint_covariance(self, new: EncodedRows) -> Floats:
        """Covariance of the noise-free residuals of new rows with each other, (new, new).

        It rests on the fitted rows that any of them is most correlated with.
        """
        with one_thread():
            cross = self.cross(new)
            count = min(JOINT_NEIGHBOURS, cross.shape[1])
            near = np.sort(np.argpartition(-cross.max(axis=0), count - 1)[:count])
            system = self.cross.among(near)
            system[np.diag_indices_from(system)] += self.noise[near]
            explained = cross[:, near] @ np.linalg.solve(system, cross[:, near].T)
            joint: Floats = covariance(new, self.hyper) - explained
        return joint

    def _variance(self, cross: Floats) -> float:
        """Variance of the noise-free residual, from its nearest fitted rows."""
        prior = self.hyper.prior_variance
        count = min(NEIGHBOURS, len(cross))
        near = np.sort(np.argpartition(-cross, count - 1)[:count])
        try:
            system = self._system(near.tobytes())
            explained = float(cross[near] @ np.linalg.solve(system, cross[near]))
        except np.linalg.LinAlgError:
            return prior
        return min(max(prior - explained, 0.0), prior)

    def _system_of(self, rows: bytes) -> Floats:
        """Covariance of fitted rows, with their noise; jobs of a sweep are near to the same."""
        near = np.frombuffer(rows, dtype=np.intp)
        return self.cross.among(near) + np.diag(self.noise[near])


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep BLAS to one thread inside: its threads would wait for one another, busily.

    On two busy cores a prediction took ten times the processor time with the threads it has by
    default. Afterwards it has what it had before. Where several Python threads were inside at a
    time that may be one: a fit in the same process is slower then, and nothing else.
    """
    with _controller().limit(limits=1, user_api="blas"):
        yield


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
