"""What benchmarks with goals share: a goal, and a percentile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal, what was reached, and whether that keeps it."""

    name: str
    reached: str
    kept: bool


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least so many are not above."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
