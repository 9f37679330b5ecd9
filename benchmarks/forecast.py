"""Backtests the demand forecast: how often its intervals hold what came, from rolling origins.

From every origin the forecast sees only what was known then. Histories are the shipped sample and
generated ones (``backtest.generate``): steady, growing by 3 % of the first week's demand a week,
and with a jump of 70 % in week 18. Run with ``python benchmarks/forecast.py``; takes a minute.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from predictor.backtest.generate import START_S, Sample, sample
from predictor.capacity.demand import DAY_S, WEEK_DAYS, WEEK_S, Demand, by_gpu_type, daily
from predictor.capacity.forecast import LEAST_WEEKS, WEEKS_AHEAD, forecast
from predictor.capacity.source import of_file
from predictor.replay import Floats

SAMPLE = Path(__file__).resolve().parents[1] / "profiles" / "samples" / "history.csv.gz"
SEEDS, WEEKS, STEP = 2, 40, 3
GROWTH, JUMP, JUMP_WEEK = 0.03, 1.7, 18


@dataclass(frozen=True, slots=True)
class Outcome:
    """One week ahead of one origin: whether each interval held it, and the error of the median."""

    history: str
    known_weeks: int
    ahead: int
    in_80: bool
    in_95: bool
    error: float


def outcomes(history: str, known: Demand, came: Floats) -> Iterator[Outcome]:
    """What the forecast from one origin was worth; ``came`` are the weeks that followed."""
    coming = forecast(known).weeks[known.weeks :]
    mean = float(known.days.sum()) / known.weeks
    for ahead, (week, truth) in enumerate(zip(coming, came[:WEEKS_AHEAD], strict=False)):
        wide, likely = week.expected, week.likely
        assert wide is not None
        assert likely is not None
        yield Outcome(
            history, known.weeks, ahead, bool(likely.low <= truth <= likely.high),
            bool(wide.low <= truth <= wide.high), abs(wide.median - float(truth)) / mean,
        )  # fmt: skip


def of_days(history: str, days: Floats) -> Iterator[Outcome]:
    """Rolling origins over one series of days."""
    weeks = days.reshape(-1, WEEK_DAYS).sum(axis=1)
    for origin in range(LEAST_WEEKS, len(weeks), STEP):
        seen = days[: origin * WEEK_DAYS]
        known = Demand(key=history, first_s=START_S, days=seen, gpus=None)
        yield from outcomes(history, known, weeks[origin:])


def of_sample() -> Iterator[Outcome]:
    """Rolling origins over the shipped sample, jobs that had not ended included."""
    frame = of_file(SAMPLE).frame
    end_s = START_S + 8 * WEEK_S
    truth = {one.key: one for one in by_gpu_type(daily(frame, end_s), end_s, {})}
    for week in range(LEAST_WEEKS, 8):
        origin_s = START_S + week * WEEK_S
        for known in by_gpu_type(daily(frame, origin_s), origin_s, {}):
            days = truth[known.key].days.reshape(-1, WEEK_DAYS)
            yield from outcomes("shipped sample", known, days.sum(axis=1)[week:])


def generated() -> Iterator[Outcome]:
    """Rolling origins over long generated histories."""
    week = np.arange(WEEKS * WEEK_DAYS) / WEEK_DAYS
    for seed in range(SEEDS):
        jobs = sample(seed=seed, days=WEEKS * WEEK_DAYS)
        for days in _daily(jobs):
            yield from of_days("steady", days)
            yield from of_days("growing", days * (1 + GROWTH * week))
            yield from of_days("a jump", days * np.where(week >= JUMP_WEEK, JUMP, 1.0))


def _daily(jobs: Sample) -> list[Floats]:
    day = ((jobs.submit_s - START_S) / DAY_S).astype(np.int64)
    hours = jobs.gpus * jobs.run_s / 3600
    found = []
    for pool in range(len(jobs.pools)):
        mine = (jobs.pool == pool) & (day < WEEKS * WEEK_DAYS)
        days = np.zeros(WEEKS * WEEK_DAYS)
        np.add.at(days, day[mine], hours[mine])
        found.append(days)
    return found


def show(name: str, found: Sequence[Outcome]) -> None:
    """One line: how many weeks, how many of them each interval held, the median error."""
    if found:
        in_80 = np.mean([one.in_80 for one in found])
        in_95 = np.mean([one.in_95 for one in found])
        error = np.median([one.error for one in found])
        print(f"{name:34s} {len(found):6d} {in_80:8.0%} {in_95:8.0%} {error:8.0%}")


def main() -> None:
    """Print coverage by history, by weeks known and by weeks ahead."""
    found = [*of_sample(), *generated()]
    print(f"{'':34s} {'weeks':>6s} {'in 80 %':>8s} {'in 95 %':>8s} {'error':>8s}")
    for name in dict.fromkeys(one.history for one in found):
        mine = [one for one in found if one.history == name]
        show(name, mine)
        show("  5 to 8 weeks known", [one for one in mine if one.known_weeks <= 8])
        show("  more known", [one for one in mine if one.known_weeks > 8])
        show("  next week", [one for one in mine if one.ahead == 0])
        show("  eighth week", [one for one in mine if one.ahead == WEEKS_AHEAD - 1])


if __name__ == "__main__":
    main()
