"""What a validation found: figures of error, of interval coverage, and the pairs to plot."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..estimate.residual.kernel import Floats
from ..physics.operator_time.evaluate import OperatorEvaluation


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the accuracy table: errors as ratios, ``n`` rows or pairs."""

    protocol: str
    method: str
    mean: float
    median: float
    p90: float
    n: int


@dataclass(frozen=True, slots=True)
class IntervalCoverage:
    """Share of measurements inside the interval, and its median half width as a ratio."""

    scope: str
    level: float
    coverage: float
    half_width: float
    n: int


@dataclass(frozen=True, slots=True)
class SourceFigure:
    """One source taken for a site nobody has measured: its errors and its 95 % intervals."""

    error: Figure
    interval: IntervalCoverage


@dataclass(frozen=True, slots=True)
class Validation:
    """All figures, and the pairs that the plots show."""

    figures: tuple[Figure, ...]
    coverages: tuple[IntervalCoverage, ...]
    sources: tuple[SourceFigure, ...]
    measured_s: Floats
    predicted_s: Floats
    measured_ratio: Floats
    predicted_ratio: Floats
    operators: OperatorEvaluation = field(default_factory=lambda: OperatorEvaluation((), ()))


def summary(protocol: str, method: str, errors: Floats) -> Figure:
    """Mean, median and 90th percentile of error ratios."""
    if not len(errors):
        return Figure(protocol, method, np.nan, np.nan, np.nan, 0)
    return Figure(
        protocol,
        method,
        float(errors.mean()),
        float(np.median(errors)),
        float(np.quantile(errors, 0.9)),
        len(errors),
    )
