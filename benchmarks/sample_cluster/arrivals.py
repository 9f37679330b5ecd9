"""When generated jobs arrive, how long and how wide they are, and what limits their users state.

The daily cycle is that of Lublin and Feitelson (JPDC 63, 2003): the weight of each half hour is a
gamma density. Wide, short, failed and cancelled jobs are as common as in the traces of deep
learning clusters (Jeon et al., USENIX ATC 2019; Hu et al., SC 2021): most jobs have one GPU, most
GPU time is in few long ones, about one job in six fails and one in eight is cancelled. Every other
figure here is an assumption of the sample, and is stated in benchmarks/README.md.
"""

from __future__ import annotations

import numpy as np

from predictor.site.backtest.workload import HOUR_S
from predictor.site.replay import Floats, Ints

DAY_S = 24 * HOUR_S
# Gamma density over half hours (shape, scale), from where the cycle starts: half past five.
CYCLE_SHAPE, CYCLE_SCALE = 8.1737, 3.9631
CYCLE_START, HALF_HOURS = 11, 48
# Jobs of a Saturday or Sunday over those of another day.
WEEKEND = 0.5
# Length of a training run without its start-up: lognormal, cut at both ends.
MEDIAN_S, SPREAD, SHORTEST_S, LONGEST_S = 30 * 60.0, 1.8, 60.0, 4 * DAY_S
# Start-up is uniform between these; a run differs from the measured step time by this, in ln.
STARTUP_S, RUN_NOISE = (30.0, 300.0), 0.03
# Share of jobs by GPUs, of those sizes that were measured.
SIZES = {1: 0.50, 2: 0.10, 4: 0.15, 8: 0.17, 16: 0.05, 32: 0.03}
# Users ask for this many times the run time, rounded up to hours; some of those for whom the
# default is enough state no limit.
SAFETY, NO_LIMIT = (2.0, 4.0), 0.3
DEFAULT_LIMIT_S, LONGEST_LIMIT_S = DAY_S, 7 * DAY_S


def daily_cycle() -> Floats:
    """The share of a day's jobs that arrive in each of its 48 half hours, from midnight."""
    place = (np.arange(HALF_HOURS) - CYCLE_START) % HALF_HOURS + CYCLE_START + 0.5
    density = place ** (CYCLE_SHAPE - 1) * np.exp(-place / CYCLE_SCALE)
    share: Floats = density / density.sum()
    return share


def arrivals(
    rng: np.random.Generator, *, start_s: float, days: float, jobs_per_day: float
) -> Floats:
    """Times of submission (n,), sorted, Poisson in every half hour; ``jobs_per_day`` of a week."""
    slots = np.arange(round(days * HALF_HOURS))
    begin_s = start_s + slots * DAY_S / HALF_HOURS
    weekday = ((begin_s // DAY_S).astype(np.int64) + 3) % 7  # the epoch was a Thursday
    day = np.where(weekday < 5, 1.0, WEEKEND) * 7 / (5 + 2 * WEEKEND)
    half_hour = (begin_s % DAY_S // (DAY_S / HALF_HOURS)).astype(np.int64)
    counts = rng.poisson(jobs_per_day * day * daily_cycle()[half_hour])
    times: Floats = np.repeat(begin_s, counts) + rng.uniform(0, DAY_S / HALF_HOURS, counts.sum())
    return np.sort(times)


def lengths(rng: np.random.Generator, count: int) -> Floats:
    """Seconds of training (n,) if nothing goes wrong."""
    drawn: Floats = np.exp(rng.normal(np.log(MEDIAN_S), SPREAD, count))
    return drawn.clip(SHORTEST_S, LONGEST_S)


def mean_length_s() -> float:
    """The mean of ``lengths``, over evenly spaced quantiles."""
    from scipy.special import ndtri

    levels = (np.arange(10_000) + 0.5) / 10_000
    drawn = np.exp(np.log(MEDIAN_S) + SPREAD * ndtri(levels))
    return float(drawn.clip(SHORTEST_S, LONGEST_S).mean())


def stated_limits(rng: np.random.Generator, whole_s: Floats) -> Floats:
    """The users' limits (n,) for runs of ``whole_s``; NaN where none is stated."""
    wanted = whole_s * rng.uniform(*SAFETY, len(whole_s))
    rounded = (np.ceil(wanted / HOUR_S) * HOUR_S).clip(max=LONGEST_LIMIT_S)
    silent = (rng.uniform(size=len(whole_s)) < NO_LIMIT) & (rounded <= DEFAULT_LIMIT_S)
    limits: Floats = np.where(silent, np.nan, rounded)
    return limits


def sizes(rng: np.random.Generator, count: int, allowed: list[int]) -> Ints:
    """GPUs of each job (n,), of the sizes that are allowed."""
    return rng.choice(np.array(allowed), count, p=size_shares(allowed))


def size_shares(allowed: list[int]) -> Floats:
    """The shares of those sizes."""
    weight = np.array([SIZES[size] for size in allowed])
    share: Floats = weight / weight.sum()
    return share
