"""What benchmarks share: goals and how they are told, a percentile, a home for one run."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal, what was reached, and whether that keeps it."""

    name: str
    reached: str
    kept: bool


def all_kept(goals: Sequence[Goal]) -> bool:
    """Print a line a goal; True if every one is kept."""
    for goal in goals:
        print(f"{'kept' if goal.kept else 'MISSED':8}{goal.name}: {goal.reached}")
    return all(goal.kept for goal in goals)


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least so many are not above."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@contextmanager
def home_of_run() -> Iterator[Path]:
    """PRECISION_TIME_HOME, or an empty one for this run: then the shipped predictor decides."""
    with tempfile.TemporaryDirectory() as home:
        yield Path(os.environ.setdefault("PRECISION_TIME_HOME", home))
