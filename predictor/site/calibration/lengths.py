"""How long jobs run that do not say: what like jobs of the same user took.

Of every key the latest WINDOW runs count, newer ones more. A key's estimate is drawn towards the
next less telling likeness of the same job, and its quantiles are conformal: each run was predicted
from the runs before it, and the errors of all keys of one likeness, in units of their spread, tell
how far off such estimates are (Vovk et al., Algorithmic Learning in a Random World).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, exp, log
from typing import Any

import numpy as np

from ..ended_job import JobState
from ..history.run import Run
from .like_jobs import LikeJob, Likeness
from .weighted import MAD_TO_DEVIATION, censored_median, weighted_quantile

MIN_RUNS = 5
WINDOW = 32
HALF_LIFE_RUNS = 10.0
# How far the centres of jobs lie apart that are alike in the next less telling way, in ln.
BETWEEN_SPREAD = 1.0
# Spread in ln that a key starts from, and how many runs it stands for.
PRIOR_SPREAD, PRIOR_SPREAD_RUNS = 0.5, 2.0
LEAST_SPREAD = 0.02
MAX_CUT_OFF = 0.25  # share of runs that hit their limit, beyond which nothing is said
MAX_SCORES = 1000
SCORED_EVERY = 5  # runs of a key, once it has WINDOW of them
MAX_KEYS = 100_000
ENDED = (JobState.COMPLETED, JobState.TIMEOUT, JobState.DEADLINE)


@dataclass(frozen=True, slots=True)
class LengthEstimate:
    """Seconds from start to end that like jobs took, start-up and pauses included.

    ``quantile_s`` is what a share ``level`` of such jobs stays below. ``evidence`` says which runs
    it rests on, ``runs`` how many.
    """

    median_s: float
    quantile_s: float
    level: float
    runs: int
    evidence: str


@dataclass(frozen=True, slots=True)
class LikeRuns:
    """What the runs of one key came to: centre and spread of ln seconds."""

    centre: float
    spread: float
    runs: int
    cut_off: float


@dataclass(frozen=True, slots=True)
class LengthModel:
    """Estimates by key; ``scores`` are sorted errors of each likeness, in spreads of their key."""

    keys: Mapping[str, LikeRuns] = field(default_factory=dict)
    scores: Mapping[Likeness, Sequence[float]] = field(default_factory=dict)
    min_runs: int = MIN_RUNS

    @classmethod
    def fit(cls, runs: Iterable[Run], *, min_runs: int = MIN_RUNS) -> LengthModel:
        """Learn from runs, oldest first; those that failed or were cancelled tell no length."""
        learner = LengthLearner(min_runs)
        for run in runs:
            learner.add(run)
        return learner.model()

    def estimate(self, job: LikeJob, level: float = 0.95) -> LengthEstimate | None:
        """The most telling estimate with enough runs; None where there is none."""
        for likeness, key in job.likenesses():
            found = self.keys.get(key)
            if found is None or found.runs < self.min_runs:
                continue
            if found.cut_off > MAX_CUT_OFF:
                return None
            quantile = _conformal(self.scores[likeness], level)
            if quantile is None:
                continue
            return LengthEstimate(
                median_s=exp(found.centre),
                quantile_s=exp(found.centre + max(quantile, 0.0) * found.spread),
                level=level,
                runs=found.runs,
                evidence=f"{found.runs} runs of {likeness.words}",
            )
        return None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "min_runs": self.min_runs,
            "scores": {k.value: [round(s, 4) for s in v] for k, v in self.scores.items()},
            "keys": {
                k: [round(v.centre, 4), round(v.spread, 4), v.runs, round(v.cut_off, 3)]
                for k, v in self.keys.items()
            },
        }

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> LengthModel:
        """The inverse of ``as_dict``; raises KeyError, TypeError or ValueError."""
        return cls(
            {str(key): LikeRuns(*values) for key, values in raw["keys"].items()},
            {Likeness(name): [float(s) for s in v] for name, v in raw["scores"].items()},
            int(raw["min_runs"]),
        )


@dataclass(slots=True)
class _Window:
    """The latest runs of one key: ln seconds, and whether each was cut off at its limit."""

    values: deque[tuple[float, bool]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    runs: int = 0

    def add(self, value: float, *, cut_off: bool) -> None:
        self.values.append((value, cut_off))
        self.runs += 1

    def summary(self, prior: float | None) -> LikeRuns:
        """Centre and spread, drawn towards ``prior`` (the centre of the next likeness)."""
        values = [value for value, _ in self.values]
        cut_off = [cut for _, cut in self.values]
        ages = np.arange(len(values))[::-1]
        weights = (0.5 ** (ages / HALF_LIFE_RUNS)).tolist()
        own, mass = censored_median(values, weights, cut_off), float(sum(weights))
        distances = [abs(v - own) for v in values]
        distance = MAD_TO_DEVIATION * weighted_quantile(distances, weights, 0.5)
        spread = (mass * distance + PRIOR_SPREAD_RUNS * PRIOR_SPREAD) / (mass + PRIOR_SPREAD_RUNS)
        spread = max(spread, LEAST_SPREAD)
        centre = own if prior is None else _drawn(own, spread**2 / mass, prior)
        return LikeRuns(centre, spread, self.runs, sum(cut_off) / len(cut_off))


class LengthLearner:
    """Goes through the runs once, oldest first, predicting each before it learns from it."""

    def __init__(self, min_runs: int = MIN_RUNS) -> None:
        self._min_runs = min_runs
        self._windows: dict[str, _Window] = {}
        self._parents: dict[str, str | None] = {}
        self._scores: dict[Likeness, deque[float]] = {
            likeness: deque(maxlen=10 * MAX_SCORES) for likeness in Likeness
        }

    def through(self, runs: Iterable[Run]) -> Iterator[Run]:
        """The same runs, each learned from on its way."""
        for run in runs:
            self.add(run)
            yield run

    def add(self, run: Run) -> None:
        """Learn from one run."""
        job = run.ended
        if job.state not in ENDED or job.start_s is None or job.end_s <= job.start_s:
            return
        value, cut_off = log(job.end_s - job.start_s), job.state is not JobState.COMPLETED
        keys = list(LikeJob.of(run).likenesses())
        parents = [key for _, key in keys[1:]]
        for (likeness, key), parent in zip(keys, [*parents, None], strict=True):
            window = self._windows.pop(key, None)
            if window is not None and self._scored(window):
                found = window.summary(self._centre(parent))
                self._scores[likeness].append((value - found.centre) / found.spread)
            window = window or _Window()
            window.add(value, cut_off=cut_off)
            self._windows[key] = window  # the last one used is the last to be dropped
            self._parents[key] = parent
        while len(self._windows) > MAX_KEYS:
            oldest = next(iter(self._windows))
            del self._windows[oldest], self._parents[oldest]

    def _scored(self, window: _Window) -> bool:
        """True where the next run of a key is predicted first: of long keys a share is enough."""
        return window.runs >= self._min_runs and (
            window.runs < WINDOW or window.runs % SCORED_EVERY == 0
        )

    def model(self) -> LengthModel:
        """What was learned."""
        keys = {
            key: window.summary(self._centre(self._parents[key]))
            for key, window in self._windows.items()
            if window.runs >= self._min_runs
        }
        scores = {likeness: _thinned(scores) for likeness, scores in self._scores.items()}
        return LengthModel(keys, scores, self._min_runs)

    def _centre(self, key: str | None) -> float | None:
        window = None if key is None else self._windows.get(key)
        return None if window is None else window.summary(None).centre


def _drawn(own: float, variance: float, prior: float) -> float:
    """The mean of a normal with a normal prior: ``own`` with its variance, and ``prior``."""
    share = variance / (variance + BETWEEN_SPREAD**2)
    return (1 - share) * own + share * prior


def _conformal(scores: Sequence[float], level: float) -> float | None:
    """The score that a share ``level`` of future ones stays below; None for too few of them."""
    rank = ceil(level * (len(scores) + 1))
    return scores[rank - 1] if 0 < rank <= len(scores) else None


def _thinned(scores: Iterable[float]) -> list[float]:
    ordered = np.sort(np.fromiter(scores, dtype=np.float64))
    if len(ordered) > MAX_SCORES:
        ordered = np.quantile(ordered, np.linspace(0, 1, MAX_SCORES))
    return [float(s) for s in ordered]
