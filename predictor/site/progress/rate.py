"""Seconds a unit from where a counter stood at which times."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import median

CHUNKS = 40  # of a stretch; a pause (validation, a checkpoint) falls into few of them
LEAST_STEPS_OF_CLOCK = 4.0  # of a clock's resolution in what may be measured by it
STEPS_OF_CLOCK = 20.0  # of a stretch: its ends are off by a step at most
RECENT = 25
# A job that was stopped and went on at the same count has an interval that is none of its work.
MOST_OUTAGES, LEAST_WITH_OUTAGES, LEAST_OF_SESSION = 5, 10, 3
_PAUSED = 1.5  # times the median of the stretches


@dataclass(frozen=True, slots=True)
class Interval:
    """So many units in so many seconds."""

    units: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Seconds a unit: ``typical_s`` without pauses, ``overall_s`` with them.

    ``certain`` from 0 to 1.
    """

    typical_s: float
    overall_s: float
    certain: float


def intervals(points: Iterable[tuple[float, float]]) -> Iterator[Interval]:
    """Between consecutive points of count and time; what goes back is no interval."""
    for (n, t), (next_n, next_t) in pairwise(points):
        if next_n > n and next_t >= t:
            yield Interval(next_n - n, next_t - t)


def measured(found: Sequence[Interval], resolution_s: float) -> Rate | None:
    """The rate of intervals in order of time; None where the clock is too coarse for them.

    The first interval holds start-up and is dropped. The typical rate is the mean over stretches of
    equal length but those far above their median, which hold pauses.
    """
    kept = _without_outages(found[1:] if len(found) > 2 else found)
    seconds, units = sum(i.seconds for i in kept), sum(i.units for i in kept)
    if not kept or units <= 0 or seconds < LEAST_STEPS_OF_CLOCK * max(resolution_s, 1e-6):
        return None
    least_s = max(STEPS_OF_CLOCK * resolution_s, seconds / CHUNKS)
    chunks = list(_chunks(kept, least_s)) or [Interval(units, seconds)]
    ordered = sorted(chunks, key=lambda c: c.seconds / c.units)
    passed = list(accumulate(c.units for c in ordered))
    middle = ordered[bisect_left(passed, passed[-1] / 2)]
    steady = [c for c in chunks if c.seconds * middle.units <= _PAUSED * middle.seconds * c.units]
    typical_s = sum(c.seconds for c in steady) / sum(c.units for c in steady)
    certain = 0.9 if len(chunks) >= 3 else 0.8 if len(found) > 2 else 0.65
    return Rate(typical_s=typical_s, overall_s=seconds / units, certain=certain)


def _without_outages(found: Sequence[Interval]) -> list[Interval]:
    """Those of the last session; the few longer than all shorter ones together are between two."""
    ordered = sorted(found, key=lambda one: -one.seconds)
    if len(found) < LEAST_WITH_OUTAGES:
        return list(found)
    left_s, last = sum(one.seconds for one in found), 0
    for number, one in enumerate(ordered[:MOST_OUTAGES], start=1):
        left_s -= one.seconds
        last = number if one.seconds > left_s else last
    gone = set(map(id, ordered[:last]))
    latest = max((at for at, one in enumerate(found) if id(one) in gone), default=-1) + 1
    if len(found) - latest >= LEAST_OF_SESSION:
        return list(found[latest:])
    return [one for one in found if id(one) not in gone]


def _chunks(found: Iterable[Interval], least_s: float) -> Iterator[Interval]:
    units = seconds = 0.0
    for one in found:
        units, seconds = units + one.units, seconds + one.seconds
        if seconds >= least_s:
            yield Interval(units, seconds)
            units = seconds = 0.0


def printed(values: Sequence[float], every: float = 1.0) -> Rate | None:
    """The rate that a program says itself, of its last lines but for the first of all.

    Of ``every`` so many units it prints one; a pause falls on a printed one.
    """
    recent = list(values[1:] if len(values) > 1 else values)[-RECENT:]
    if not recent:
        return None
    certain = 0.8 if len(recent) >= 3 else 0.7 if len(values) > 1 else 0.55
    usual_s = median(recent)
    pauses_s = (sum(recent) / len(recent) - usual_s) / max(1.0, every)
    return Rate(typical_s=usual_s, overall_s=usual_s + pauses_s, certain=certain)
