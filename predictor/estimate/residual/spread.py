"""How far predictions at new sites miss, by what a job is made of.

The process believes all of them about as sure. Yet steps of large matrix products transfer well,
steps bound by host, update or messages do not. The expected miss is log-linear in the numbers of a
job: a regression with exponential errors (McCullagh & Nelder, Generalized Linear Models, ch. 8).
"""

from __future__ import annotations

import numpy as np

from .features import NUMBERS, EncodedRows
from .kernel import Floats

# Pulls the slopes towards none, per unit of weight and standard deviation: few sources teach them.
SHRINKAGE = 0.6
ITERATIONS = 12


class Spread:
    """A factor on deviations: exp(slopes x numbers), held within the numbers of ``taught``."""

    def __init__(self, slopes: Floats, taught: EncodedRows) -> None:
        self.slopes = slopes
        self._low, self._high = taught.numbers.min(axis=0), taught.numbers.max(axis=0)
        self._centre = taught.numbers.mean(axis=0)

    @classmethod
    def learn(cls, taught: EncodedRows, misses: Floats, weights: Floats) -> Spread:
        """From absolute errors over deviations (n,) of rows that count by ``weights`` (n,)."""
        size = taught.numbers.std(axis=0)
        size[size == 0] = np.inf
        size[NUMBERS.index("date")] = np.inf  # may be unknown
        numbers = (taught.numbers - taught.numbers.mean(axis=0)) / size
        design = np.column_stack([np.ones(len(taught)), numbers])
        weighted = design.T * (weights / weights.sum())
        shrunk = weighted @ design + np.diag([0.0] + [SHRINKAGE] * len(NUMBERS))
        expected = np.full(len(taught), np.log(np.average(misses, weights=weights)))
        for _ in range(ITERATIONS):  # Fisher scoring
            scores = expected + misses * np.exp(-expected) - 1
            coefficients = np.linalg.solve(shrunk, weighted @ scores)
            expected = design @ coefficients
        return cls(coefficients[1:] / size, taught)

    def factors(self, table: EncodedRows) -> Floats:
        """The factor of each row, (n,)."""
        numbers = np.clip(table.numbers, self._low, self._high) - self._centre
        return np.asarray(np.exp(numbers @ self.slopes))
