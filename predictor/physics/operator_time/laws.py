"""What a time law is: constants with a prior, and the seconds they give for operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .work import Floats, Work

Formula = Callable[[Floats, Work], Floats]


@dataclass(frozen=True, slots=True)
class Constant:
    """One constant of a law, in the log or logit domain: name, prior mean and deviation."""

    name: str
    mean: float
    deviation: float


@dataclass(frozen=True, slots=True)
class Law:
    """``formula(constants (n or 1, p), work of n) -> seconds (n,)``, never falling with work."""

    name: str
    constants: tuple[Constant, ...]
    formula: Formula

    @property
    def prior(self) -> Floats:
        """Prior means, (p,)."""
        return np.array([c.mean for c in self.constants])

    @property
    def deviation(self) -> Floats:
        """Prior standard deviations, (p,)."""
        return np.array([c.deviation for c in self.constants])


def sigmoid(x: Floats) -> Floats:
    """Logistic function."""
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def power_mean(a: Floats, b: Floats) -> Floats:
    """Smooth maximum (3-norm) of two overlapping times."""
    return np.cbrt(a * a * a + b * b * b)
