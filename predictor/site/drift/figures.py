"""How wrong predictions were: median error and coverage of the 95 % interval, by week."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import expm1

import numpy as np

from ..calibration.proportion import wilson
from .stream import Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftFigures:
    """Of ``runs`` predicted runs; None where nothing is known.

    ``bias`` is the median share by which they took longer than predicted, ``coverage`` the share
    inside the 95 % interval among the ``judged`` whose interval is known, with the bounds of its
    own 95 % interval.
    """

    runs: int
    bias: float | None
    judged: int
    coverage: float | None
    coverage_low: float | None
    coverage_high: float | None

    @classmethod
    def of(cls, observed: Sequence[Observation]) -> DriftFigures:
        """Those of some runs."""
        errors = [o.error for o in observed if o.error is not None]
        inside = [o.inside for o in observed if o.inside is not None]
        low, high = wilson(sum(inside), len(inside)) if inside else (None, None)
        return cls(
            runs=len(errors),
            bias=expm1(float(np.median(errors))) if errors else None,
            judged=len(inside),
            coverage=sum(inside) / len(inside) if inside else None,
            coverage_low=low,
            coverage_high=high,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """The figures of one week, by the Monday (UTC) it starts on."""

    monday: str
    figures: DriftFigures


def weeks_of(observed: Sequence[Observation]) -> Iterator[Week]:
    """The figures of every week with runs, oldest first."""
    by_monday: defaultdict[str, list[Observation]] = defaultdict(list)
    for one in observed:
        by_monday[_monday(one.end_s)].append(one)
    for monday, those in sorted(by_monday.items()):
        yield Week(monday=monday, figures=DriftFigures.of(those))


def _monday(moment_s: float) -> str:
    day = datetime.fromtimestamp(moment_s, UTC).date()
    return str(day - timedelta(days=day.weekday()))
