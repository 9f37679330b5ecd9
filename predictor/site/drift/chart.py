"""The chart of one stream: two cumulative sums of rank scores, and the changes they found."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from math import expm1, log, sqrt

import numpy as np

from ..calibration.run_groups import weighted_quantile
from .observed import Observation

# Earlier similar runs before a run counts: fewer tell little of where it should be.
MIN_EARLIER = 4


class SequentialRanks:
    """Scores of mean 0 and variance 1, positive for slow."""

    def __init__(self) -> None:
        self._sorted: defaultdict[Hashable, list[float]] = defaultdict(list)

    def score(self, like: Hashable, value: float, *, lower_bound: bool = False) -> float | None:
        """The score of the next run, None where too few are like it.

        A lower bound counts where it is above the median of its like, and then as if it were the
        truth, which is on the safe side; one below says nothing and is forgotten.
        """
        seen = self._sorted[like]
        enough = len(seen) >= MIN_EARLIER
        if lower_bound and (not enough or value < seen[len(seen) // 2]):
            return None
        found = _score(seen, value) if enough else None
        insort(seen, value)
        return found


def _score(seen: list[float], value: float) -> float:
    """The mid-rank among those seen, standardised as the uniform distribution on all ranks."""
    total = len(seen) + 1
    rank = (bisect_left(seen, value) + bisect_right(seen, value)) / 2 + 1
    return (rank - (total + 1) / 2) / sqrt((total * total - 1) / 12)


# A lasting shift of the mean score by twice this is found soonest: about one standard deviation of
# the runs of one configuration.
REFERENCE = 0.4
HALF_WIDTH = sqrt(3.0)  # of the uniform distribution with variance 1
STATES = 160
LIMITS = (1.5, 40.0)
TOLERANCE = 1e-3
YEAR_S = 365.25 * 86400


@lru_cache(maxsize=256)
def mean_runs_between_alarms(limit: float) -> float:
    """Runs between false alarms of the two charts of one stream at a limit.

    The sum as a Markov chain of STATES levels (Brook and Evans, Biometrika 59 (1972) 539), with
    scores uniform of variance 1. Ranks among few are less extreme, so they alarm less often.
    """
    width = 2 * limit / (2 * STATES - 1)
    levels = width * np.arange(STATES)
    edges = levels[None, :] + width / 2 + REFERENCE - levels[:, None]
    reached = np.clip((edges + HALF_WIDTH) / (2 * HALF_WIDTH), 0.0, 1.0)
    moves = np.diff(reached, axis=1, prepend=0.0)
    runs = np.linalg.solve(np.eye(STATES) - moves, np.ones(STATES))
    return float(runs[0]) / 2


def limit_for(false_alarms_per_year: float, scores_per_year: float) -> float:
    """The limit at which all charts together raise so many false alarms a year.

    ``scores_per_year`` counts a run once in every stream it belongs to.
    """
    wanted = scores_per_year / false_alarms_per_year
    low, high = LIMITS
    while high - low > TOLERANCE:
        middle = (low + high) / 2
        if mean_runs_between_alarms(middle) < wanted:
            low = middle
        else:
            high = middle
    return high


Values = defaultdict[Hashable, list[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """From ``since_s`` on runs take longer by the share ``shift`` (less where negative).

    Found at ``alarm_s`` (Unix seconds) after ``runs`` runs of ``users`` users in
    ``configurations`` configurations.
    """

    since_s: float
    alarm_s: float
    shift: float
    runs: int
    users: int
    configurations: int


@dataclass(slots=True)
class _Sum:
    """One cumulative sum (Page, Biometrika 41 (1954) 100): ``sign`` 1 for slower, -1 for faster."""

    sign: int
    value: float = 0.0
    held: list[Observation] = field(default_factory=list)

    def add(self, observed: Observation, score: float) -> None:
        self.value += self.sign * score - REFERENCE
        if self.value <= 0:
            self.value = 0.0
            self.held.clear()
        else:
            self.held.append(observed)


class Chart:
    """Takes the runs of a stream oldest first; ``limit`` sets how rare false alarms are."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._scored = 0
        self._found: list[_Found] = []
        self._restart()

    @property
    def scored(self) -> int:
        """Runs that were compared with earlier ones like them."""
        return self._scored

    @property
    def changes(self) -> tuple[Change, ...]:
        """What was found, oldest first."""
        return tuple(found.change for found in self._found)

    def add(self, observed: Observation) -> bool:
        """Take one run; True where it raises an alarm, after which the chart starts again."""
        value = log(observed.step_s)
        if not observed.lower_bound:
            self._values[observed.like].append((observed.end_s, value))
            if self._found:
                self._found[-1].after[observed.like].append(value)
        score = self._ranks.score(observed.like, value, lower_bound=observed.lower_bound)
        if score is None:
            return False
        self._scored += 1
        for one in self._sums:
            one.add(observed, score)
            if one.value > self._limit:
                self._found.append(_Found.of(one.held, self._values))
                self._restart()
                return True
        return False

    def _restart(self) -> None:
        self._ranks = SequentialRanks()
        self._sums = (_Sum(1), _Sum(-1))
        self._values: defaultdict[Hashable, list[tuple[float, float]]] = defaultdict(list)


@dataclass(slots=True, kw_only=True)
class _Found:
    """A change: ln step times before and after it, by configuration; later runs still come in."""

    held: tuple[Observation, ...]
    before: Values
    after: Values

    @classmethod
    def of(
        cls, held: list[Observation], values: defaultdict[Hashable, list[tuple[float, float]]]
    ) -> _Found:
        since_s = held[0].end_s
        before, after = Values(list), Values(list)
        for like, pairs in values.items():
            for end_s, value in pairs:
                (after if end_s >= since_s else before)[like].append(value)
        return cls(held=tuple(held), before=before, after=after)

    @property
    def change(self) -> Change:
        return Change(
            since_s=self.held[0].end_s,
            alarm_s=self.held[-1].end_s,
            shift=expm1(self._shift()),
            runs=len(self.held),
            users=len({one.user for one in self.held}),
            configurations=len({one.like[1] for one in self.held}),
        )

    def _shift(self) -> float:
        """The median over configurations of how far their medians moved, by their fewer runs."""
        both = [like for like, values in self.before.items() if values and self.after.get(like)]
        moved = [float(np.median(self.after[k]) - np.median(self.before[k])) for k in both]
        weights = [float(min(len(self.after[k]), len(self.before[k]))) for k in both]
        return weighted_quantile(moved, weights, 0.5) if both else 0.0
