"""Daily demand to forecast: the shipped sample, and generated histories put through what happens.

Generated jobs (``sample_cluster``) are of a large cluster and of one with 24 GPUs of a type,
where a few long jobs make a week. Their demand stays as it is, grows by 3 % of the first week's a
week, jumps by 70 % in week 18, wanders (each week's level is the last one's times a lognormal
factor of spread 0.08), or is nought in one week of ten.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from sample_cluster.generate import POOLS, START_S, Sample, sample

from predictor.estimate.store import load_predictor
from predictor.site.capacity.forecast import DAY_S, WEEK_DAYS, WEEK_S, Demand, by_gpu_type, daily
from predictor.site.capacity.jobs import of_file
from predictor.site.capacity.queue import estimates_at
from predictor.site.replay import Floats, Ints

SAMPLE = Path(__file__).resolve().parents[1] / "profiles" / "samples" / "history.csv.gz"
SAMPLE_WEEKS, WEEKS = 8, 40
SMALL = tuple(replace(pool, gpus=24) for pool in POOLS)
GROWTH, JUMP, JUMP_WEEK, WANDER, OFF = 0.03, 1.7, 18, 0.08, 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A moment: the days known then, and the weeks that came."""

    history: str
    days: Floats
    came: Floats


def of_sample(least_weeks: int) -> Iterator[Origin]:
    """Every Monday of the shipped sample, jobs that had not ended then included."""
    source, predictor = of_file(SAMPLE), load_predictor()
    end_s = START_S + SAMPLE_WEEKS * WEEK_S

    def known_at(at_s: float) -> list[Demand]:
        table = daily(source.frame, at_s, estimates_at(source, at_s, (), predictor))
        return by_gpu_type(table, at_s, {})

    truth = {one.key: _weekly(one.days) for one in known_at(end_s)}
    for week in range(least_weeks, SAMPLE_WEEKS):
        origin_s = START_S + week * WEEK_S
        for known in known_at(origin_s):
            yield Origin(history="shipped sample", days=known.days, came=truth[known.key][week:])


def generated(seeds: range, least_weeks: int, step: int) -> Iterator[Origin]:
    """Every ``step`` weeks of generated histories."""
    for seed in seeds:
        for size, pools in (("large", POOLS), ("small", SMALL)):
            jobs = sample(seed=seed, days=WEEKS * WEEK_DAYS, pools=pools)
            for number, days in enumerate(_daily(jobs)):
                rng = np.random.default_rng((seed, number))
                for name, one in _happenings(days, rng):
                    for origin in range(least_weeks, WEEKS, step):
                        yield Origin(
                            history=f"{size}, {name}",
                            days=one[: origin * WEEK_DAYS],
                            came=_weekly(one)[origin:],
                        )


def _happenings(days: Floats, rng: np.random.Generator) -> Iterator[tuple[str, Floats]]:
    week: Ints = np.arange(len(days)) // WEEK_DAYS
    level = np.exp(np.cumsum(rng.normal(0, WANDER, WEEKS)))
    off = rng.random(WEEKS) < OFF
    yield "steady", days
    yield "growing", days * (1 + GROWTH * np.arange(len(days)) / WEEK_DAYS)
    yield "jump", days * np.where(week >= JUMP_WEEK, JUMP, 1.0)
    yield "wandering", days * level[week]
    yield "weeks of nought", days * ~off[week]


def _weekly(days: Floats) -> Floats:
    found: Floats = days.reshape(-1, WEEK_DAYS).sum(axis=1)
    return found


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
