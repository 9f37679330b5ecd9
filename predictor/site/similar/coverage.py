"""Quantiles that hold: how often runs took longer than was said, put right as they end.

Every run that ends has a score: the share of the distribution it was expected from that lies
below it. The level at which to read a distribution is the quantile of recent scores (split
conformal prediction), moved a little with every miss (adaptive conformal inference: Gibbs and
Candes, NeurIPS 2021), so that it follows a site whose jobs change.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from math import ceil

import numpy as np

RECENT_SCORES = 1000
# Of jobs submitted together so many scores count.
PER_BATCH = 10
STEP = 0.001
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
TOLD_LEVEL = 0.95
# Scores of a distribution that is right, to begin with.
FIRST_SCORES = 100
_MISSES = 1 - np.array(LEVELS)
_ABOVE = 1e-6
LEAST_LEVEL, MOST_LEVEL = 0.001, 0.999


class QuantileCoverage:
    """Scores of the latest runs, and how far each level has to be moved."""

    def __init__(self, scores: Iterable[float] = (), moved: Sequence[float] | None = None) -> None:
        first = (np.arange(FIRST_SCORES) + 0.5) / FIRST_SCORES
        shuffled = np.random.default_rng(0).permutation(first).tolist()
        self._latest: deque[float] = deque(list(scores) or shuffled, maxlen=RECENT_SCORES)
        self._sorted = sorted(self._latest)
        self._moved = np.zeros(len(LEVELS)) if moved is None else np.array(moved, dtype=float)
        self._batches: Counter[str] = Counter()
        self._held: deque[bool] = deque(maxlen=RECENT_SCORES)

    def level(self, level: float) -> float:
        """Where to read a distribution, so that a share ``level`` of runs stays below."""
        return self._read(level + float(np.interp(level, LEVELS, self._moved)))

    def levels(self) -> tuple[float, ...]:
        """Where to read a distribution for each of LEVELS."""
        return tuple(map(self._read, LEVELS + self._moved))

    def learn(self, score: float, batch: str) -> None:
        """Take in the score of a run that ended."""
        reached = score >= np.array(self.levels())
        self._held.append(not reached[LEVELS.index(TOLD_LEVEL)])
        missed = reached - _MISSES
        self._moved = np.clip(self._moved + STEP * missed, -_MISSES, _MISSES)
        self._batches[batch] += 1
        if self._batches[batch] > PER_BATCH:
            return
        if len(self._latest) == RECENT_SCORES:
            del self._sorted[bisect_left(self._sorted, self._latest[0])]
        if len(self._batches) > RECENT_SCORES:
            del self._batches[next(iter(self._batches))]
        self._latest.append(score)
        insort(self._sorted, score)

    def _read(self, wanted: float) -> float:
        """The score that a share ``wanted`` of them stays below, just above it."""
        wanted = min(max(wanted, LEAST_LEVEL), MOST_LEVEL)
        rank = ceil(wanted * (len(self._sorted) + 1))
        return min(float(self._sorted[min(rank, len(self._sorted)) - 1]) + _ABOVE, 1.0)

    @property
    def held(self) -> float | None:
        """The share of the latest runs that stayed below their 95 % quantile; None before any."""
        return sum(self._held) / len(self._held) if self._held else None

    def as_dict(self) -> dict[str, list[float]]:
        """Plain values for JSON."""
        return {
            "scores": [round(score, 5) for score in self._latest],
            "moved": self._moved.round(6).tolist(),
        }
