"""A correction interpolated between measured points: a Gaussian process over label and sizes.

The covariance falls exponentially with the sum of absolute differences, so that measured curves
may bend (Ornstein-Uhlenbeck; Rasmussen & Williams, Gaussian Processes for Machine Learning, 4.2.1).
Far from every point the correction is nothing. Length scale and size are those of best
leave-one-out density (5.4.2 there).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from .work import Floats

LENGTHS = (2.0, 4.0, 8.0, 16.0)  # in ln units, over all dimensions together
DEVIATIONS = (0.15, 0.3, 0.6)  # of the correction, in ln units
NOISES = (0.05, 0.15)  # of one measurement
APART = 0.7  # covariance of points that have different labels, but the same sizes
OUTLIER = 3.0  # leave-one-out errors beyond so many deviations are given that much more noise


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """Points (n, 1 + d), a label and sizes, and weights (n,) of the process."""

    points: Floats
    weights: Floats
    length: float
    deviation: float

    def at(self, points: Floats) -> Floats:
        """The correction (m,) at ``points`` (m, 1 + d), in ln units."""
        if not len(points):
            return np.zeros(0)
        return _covariance(points, self.points, self.length, self.deviation) @ self.weights

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "points": self.points.tolist(),
            "weights": self.weights.tolist(),
            "length": self.length,
            "deviation": self.deviation,
        }

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Neighbours:
        """The inverse of ``to_dict``."""
        points, weights = (np.asarray(raw[key], dtype=float) for key in ("points", "weights"))
        return cls(points, weights, float(raw["length"]), float(raw["deviation"]))


def interpolated(points: Floats, values: Floats) -> Neighbours:
    """The process through ``values`` (n,) at ``points`` (n, 1 + d), outliers given more noise."""
    settings = product(LENGTHS, DEVIATIONS, NOISES)
    best = max(settings, key=lambda setting: _density(points, values, *setting))
    length, deviation, noise = best
    covariance = _covariance(points, points, length, deviation)
    spread = np.full(len(values), noise)
    error, expected = _left_out(covariance, values, spread)
    spread *= np.maximum(1.0, np.abs(error) / (OUTLIER * expected)) ** 2
    weights = np.asarray(np.linalg.solve(covariance + np.diag(spread**2), values), dtype=float)
    return Neighbours(points, weights, length, deviation)


def _density(
    points: Floats, values: Floats, length: float, deviation: float, noise: float
) -> float:
    """Log density of each value given all others, large errors counted linearly."""
    covariance = _covariance(points, points, length, deviation)
    error, expected = _left_out(covariance, values, np.full(len(values), noise))
    score = np.abs(error) / expected
    loss = np.where(score < OUTLIER, 0.5 * score**2, OUTLIER * (score - OUTLIER / 2))
    return -float((loss + np.log(expected)).sum())


def _left_out(covariance: Floats, values: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Error and expected deviation (n,) of each value predicted from all others."""
    inverse = np.linalg.inv(covariance + np.diag(noise**2))
    own = np.diag(inverse)
    return inverse @ values / own, np.sqrt(1.0 / own)


def _covariance(a: Floats, b: Floats, length: float, deviation: float) -> Floats:
    distance = np.zeros((len(a), len(b)))
    for column in range(1, a.shape[1]):
        distance += np.abs(a[:, column, None] - b[None, :, column])
    alike = np.where(a[:, :1] == b[None, :, 0], 1.0, APART)
    return np.asarray(deviation**2 * alike * np.exp(-distance / length))


def stored(neighbours: Sequence[Neighbours | None]) -> list[object]:
    """A column of processes, for JSON."""
    return [None if one is None else one.to_dict() for one in neighbours]
