"""A distribution of run times, drawn from weighted runs of which some are lower bounds."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, exp

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# Where every run was cut off and no limit is known: how far beyond the longest, in ln.
BEYOND = float(np.log(2.0))
# Of two equal times the run that ended comes first.
_TIE = 1e-9
# Runs of the same job differ so much, in ln: their highest quantile lies above the longest.
ALIKE = 0.01


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Times (n,) in ln seconds, ascending, and the share of jobs (n,) that run at most as long."""

    ln_s: Floats
    cumulative: Floats

    @classmethod
    def of(
        cls, ln_s: Floats, weight: Floats, bounds: NDArray[np.bool_], ln_cap: float | None
    ) -> RunTimes:
        """From runs with weights, of which ``bounds`` are lower bounds, none beyond the cap.

        The weight of a lower bound goes to the longer runs (Efron, Berkeley Symposium 1967; the
        estimate of Kaplan and Meier), and where there are none to the cap.
        """
        order = np.argsort(ln_s + _TIE * bounds)
        ln_s, weight, bounds = ln_s[order], weight[order], bounds[order]
        left = np.cumsum(weight[::-1])[::-1]
        survival = np.cumprod(
            1.0 - np.where(bounds, 0.0, weight / np.maximum(left, _TIE)).clip(0.0, 1.0)
        )
        last = ln_s[-1] + BEYOND if ln_cap is None else ln_cap
        values = np.append(ln_s if ln_cap is None else np.minimum(ln_s, ln_cap), last)
        return cls(values, np.append(1.0 - survival, 1.0))

    def quantile_s(self, level: float) -> float:
        """Seconds that a share ``level`` of such jobs run at most, no less than one."""
        at = int(np.searchsorted(self.cumulative, level - _TIE))
        ln_s = float(self.ln_s[min(at, len(self.ln_s) - 1)]) + ALIKE * max(2 * level - 1, 0.0)
        return exp(max(0.0, min(ln_s, float(self.ln_s[-1]))) + _TIE)  # never rounded down

    def mean_s(self, most_s: float) -> float:
        """The mean of the quantiles, where what runs longer than ``most_s`` counts as that long."""
        run_s = np.minimum(np.exp(self.ln_s.clip(0.0)), most_s)
        return float(run_s[-1] - self.cumulative[:-1] @ (run_s[1:] - run_s[:-1]))

    def share_below(self, ln_s: float) -> float:
        """The share of jobs that run less long: the highest level whose quantile is too short."""
        upper = np.minimum(self.ln_s + ALIKE * (2 * self.cumulative - 1).clip(0), self.ln_s[-1])
        at = int(np.searchsorted(upper, ln_s - _TIE))
        return float(self.cumulative[at - 1]) if at else 0.0


RECENT_SCORES = 1000
# Of jobs submitted together so many scores count.
PER_BATCH = 10
STEP = 0.001
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
TOLD_LEVEL = 0.95
# Scores of a distribution that is right, to begin with.
FIRST_SCORES = 100
_MISSES = 1 - np.array(LEVELS)
# Only high levels move with every run: a burst of one user's would take the others to the shortest.
_MOST_MOVED = np.where(_MISSES < 0.11, _MISSES, 0.0)
_ABOVE = 1e-6
LEAST_LEVEL, MOST_LEVEL = 0.001, 0.999


class QuantileCoverage:
    """Scores of the latest runs, and how far each high level has to be moved."""

    def __init__(self, scores: Iterable[float] = (), moved: Sequence[float] | None = None) -> None:
        first = (np.arange(FIRST_SCORES) + 0.5) / FIRST_SCORES
        shuffled = np.random.default_rng(0).permutation(first).tolist()
        self._latest: deque[float] = deque(list(scores) or shuffled, maxlen=RECENT_SCORES)
        self._sorted = sorted(self._latest)
        self._moved = np.clip(moved or np.zeros(len(LEVELS)), -_MOST_MOVED, _MOST_MOVED)
        self._batches: Counter[str] = Counter()
        self._held: deque[bool] = deque(maxlen=RECENT_SCORES)

    def levels(self) -> tuple[float, ...]:
        """Where to read a distribution for each of LEVELS, none above the next."""
        read = [self._read(level) for level in (LEVELS + self._moved).tolist()]
        return tuple(accumulate(reversed(read), min))[::-1]

    def learn(self, score: float, batch: str) -> None:
        """Take in the score of a run that ended."""
        reached = score >= np.array(self.levels())
        self._held.append(not reached[LEVELS.index(TOLD_LEVEL)])
        self._moved = (self._moved + STEP * (reached - _MISSES)).clip(-_MOST_MOVED, _MOST_MOVED)
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
        return min(self._sorted[min(rank, len(self._sorted)) - 1] + _ABOVE, 1.0)

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
