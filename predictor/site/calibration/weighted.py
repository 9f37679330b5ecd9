"""Robust figures of weighted, partly censored samples."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray

Z = 1.96  # of a 95 % interval


def wilson(hits: int, runs: int) -> tuple[float, float]:
    """The 95 % interval of the share (Wilson, J. Am. Stat. Assoc. 22 (1927) 209); ``runs`` > 0."""
    share, z2 = hits / runs, Z * Z / runs
    middle = share + z2 / 2
    half = sqrt(z2 * (share * (1 - share) + z2 / 4))
    return max(0.0, (middle - half) / (1 + z2)), min(1.0, (middle + half) / (1 + z2))


Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

MAD_TO_DEVIATION = 1.4826  # of a normal distribution


def weighted_quantile(values: Sequence[float], weights: Sequence[float], level: float) -> float:
    """The smallest value at or below which a share ``level`` of the weight lies."""
    order = np.argsort(values, kind="stable")
    mass = np.cumsum(np.asarray(weights, dtype=np.float64)[order])
    at = int(np.searchsorted(mass, level * mass[-1] * (1 - 1e-12)))
    return float(np.asarray(values)[order[min(at, len(order) - 1)]])


def censored_median(
    values: Sequence[float], weights: Sequence[float], censored: Sequence[bool]
) -> float:
    """The median where ``censored`` values are known only as lower bounds.

    Kaplan and Meier, J. Am. Stat. Assoc. 53 (1958) 457. Where the curve stays above one half, the
    largest value: the median is there or further. At ties what was observed comes first.
    """
    order = np.lexsort((np.asarray(censored), np.asarray(values)))
    mass = np.asarray(weights, dtype=np.float64)[order]
    at_risk = np.cumsum(mass[::-1])[::-1]
    seen = ~np.asarray(censored, dtype=bool)[order]
    survival = np.cumprod(np.where(seen, 1 - mass / at_risk, 1.0))
    below = np.flatnonzero(survival <= 0.5 + 1e-12)
    return float(np.asarray(values, dtype=np.float64)[order[below[0] if len(below) else -1]])


def spread(values: Sequence[float]) -> float:
    """Robust standard deviation: the median distance from the median, scaled as of a normal."""
    found = np.asarray(values, dtype=np.float64)
    return float(MAD_TO_DEVIATION * np.median(np.abs(found - np.median(found))))
