"""How wrong a predictor is on runs that did not teach it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import expm1, log

import numpy as np

from ...errors import GraphError, JobError
from ...estimate.core import Predictor
from .site_run import SiteRun

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Checked:
    """One run that was held back; ``error`` is ln(measured / predicted) of its step time."""

    candidate: SiteRun
    error: float
    inside: bool

    @property
    def ratio(self) -> float:
        """|predicted - measured| / measured."""
        return abs(expm1(-self.error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Error ratios of ``runs`` runs, and the share inside the 95 % interval."""

    runs: int
    mean: float
    median: float
    coverage: float

    @classmethod
    def of(cls, checked: Sequence[Checked]) -> Errors | None:
        """None where there are no runs."""
        if not checked:
            return None
        ratios = [c.ratio for c in checked]
        return cls(
            runs=len(checked),
            mean=float(np.mean(ratios)),
            median=float(np.median(ratios)),
            coverage=float(np.mean([c.inside for c in checked])),
        )


def check(predictor: Predictor, candidates: Iterable[SiteRun]) -> list[Checked]:
    """Each run against its prediction; runs that cannot be predicted are left out."""
    checked = []
    for candidate in candidates:
        try:
            found = predictor.predict(candidate.job)
        except (GraphError, JobError):
            continue
        interval = found.interval(LEVEL)
        inside = interval.low_s <= candidate.step_s <= interval.high_s
        checked.append(Checked(candidate, log(candidate.step_s / found.step_s), inside))
    return checked


def errors_by(checked: Iterable[Checked], key: Callable[[SiteRun], str]) -> dict[str, Errors]:
    """The errors of each group of runs, by its name."""
    groups: defaultdict[str, list[Checked]] = defaultdict(list)
    for one in checked:
        groups[key(one.candidate)].append(one)
    found = {name: Errors.of(members) for name, members in sorted(groups.items())}
    return {name: errors for name, errors in found.items() if errors is not None}


def stack(candidate: SiteRun) -> str:
    """Framework and GPU: what one calibration run speaks for."""
    return f"{candidate.job.framework}, {candidate.job.gpu}"


def beyond(predictor: Predictor, bounds: Sequence[SiteRun]) -> int:
    """How many lower bounds are above the interval: runs that took longer than it allows."""
    return sum(one.error > 0 and not one.inside for one in check(predictor, bounds))
