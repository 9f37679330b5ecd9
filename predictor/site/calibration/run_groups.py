"""Like runs as one measurement: a million runs of a site become a few thousand rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray

from ...estimate.measurement import Measurement
from ...job.training_job import TrainingJob
from .run_reader import SiteRun, StepEvidence

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


# An outlier is this many robust deviations from the median of at least so many similar runs.
MAX_DEVIATIONS = 5.0
MIN_LIKE = 4
# Runs of one job on one cluster differ by this at least, so nothing nearer is an outlier.
LEAST_SPREAD = 0.03
OUTLIER = "far from similar runs"
ONLY_BOUNDS = "hit the limit, as all similar runs did"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGroup:
    """Runs of one configuration on one cluster.

    ``step_s`` is their median, runs that hit their limit taken as lower bounds. ``runs`` count
    those that were measured, ``bounds`` those that hit the limit; ``spread`` is the robust
    standard deviation of ln step time among the measured ones, None for fewer than MIN_LIKE.
    """

    job: TrainingJob
    step_s: float
    runs: int
    bounds: int
    users: int
    spread: float | None

    def measurement(self, number: int) -> Measurement:
        """As a row of the site."""
        source = self.job.source
        row = {"framework": self.job.framework, "note": f"{self.runs} runs of {self.users} users"}
        return Measurement(f"{source}/{number}", self.job, self.step_s, source, row)


@dataclass(frozen=True, slots=True)
class RunGroups:
    """All groups, and how many runs are in none of them by reason."""

    groups: tuple[RunGroup, ...]
    left: Counter[str]

    def measurements(self) -> list[Measurement]:
        """One row a group."""
        return [group.measurement(number) for number, group in enumerate(self.groups)]

    @property
    def spread(self) -> float | None:
        """Standard deviation of one run around its group in ln, None where no group is large."""
        known = [(group.spread, group.runs) for group in self.groups if group.spread is not None]
        if not known:
            return None
        spreads, runs = zip(*known, strict=True)
        return float(np.sqrt(np.average(np.square(spreads), weights=runs)))


def run_groups(candidates: Iterable[SiteRun]) -> RunGroups:
    """Join candidates of the same configuration; those without weight and outliers are left out."""
    members: defaultdict[TrainingJob, list[SiteRun]] = defaultdict(list)
    for candidate in candidates:
        if candidate.weight > 0:
            members[without_length(candidate.job)].append(candidate)
    left: Counter[str] = Counter()
    groups = []
    for job, like in members.items():
        kept = _inliers(like)
        if len(kept) < len(like):
            left[OUTLIER] += len(like) - len(kept)
        if all(c.kind is StepEvidence.LOWER_BOUND for c in kept):
            left[ONLY_BOUNDS] += len(kept)
        else:
            groups.append(_group(job, like, kept))
    return RunGroups(tuple(groups), left)


def without_length(job: TrainingJob) -> TrainingJob:
    """The job whatever its length, which its step time does not depend on."""
    return job.but(steps=None, epochs=None, dataset_size=None)


def _inliers(like: Sequence[SiteRun]) -> list[SiteRun]:
    measured = [c for c in like if c.kind is not StepEvidence.LOWER_BOUND]
    if len(measured) < MIN_LIKE:
        return list(like)
    values, weights = [log(c.step_s) for c in measured], [c.weight for c in measured]
    middle = weighted_quantile(values, weights, 0.5)
    deviation = weighted_quantile([abs(v - middle) for v in values], weights, 0.5)
    most = MAX_DEVIATIONS * max(MAD_TO_DEVIATION * deviation, LEAST_SPREAD)
    return [
        c for c in like if c.kind is StepEvidence.LOWER_BOUND or abs(log(c.step_s) - middle) <= most
    ]


def _group(job: TrainingJob, like: Sequence[SiteRun], kept: Sequence[SiteRun]) -> RunGroup:
    """The median is over outliers too: without far honest runs, liars could be more than half."""
    measured = [log(c.step_s) for c in kept if c.kind is not StepEvidence.LOWER_BOUND]
    censored = [c.kind is StepEvidence.LOWER_BOUND for c in like]
    middle = censored_median([log(c.step_s) for c in like], [c.weight for c in like], censored)
    return RunGroup(
        job=job,
        step_s=exp(middle),
        runs=len(measured),
        bounds=len(kept) - len(measured),
        users=len({c.user for c in kept}),
        spread=max(spread(measured), LEAST_SPREAD / 3) if len(measured) >= MIN_LIKE else None,
    )
