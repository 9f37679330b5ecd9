"""Demand of the weeks to come, with a band that says what a history of its length can tell.

Weeks are sums over the days that ``forecast_model`` draws, so that their bands hold how days err
together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from ..replay import Floats
from .demand import WEEK_DAYS, WEEK_S, Demand, by_gpu_type, by_partition, daily
from .forecast_model import PATHS, paths
from .report_data import DemandForecast, Range, WeekDemand

LEAST_WEEKS = 5
WEEKS_AHEAD = 8
# Forecasts of one report, those with the most GPU-hours.
MOST = 12
METHOD = (
    "a level that wanders and drifts, and a season of a week, on days; "
    f"{PATHS:,} draws over how fast it changes, central 80 % and 95 % of weeks"
)
LEVELS = (0.025, 0.1, 0.5, 0.9, 0.975)


def forecasts(
    frame: pl.LazyFrame, until_s: float, gpus: Mapping[str, int]
) -> tuple[tuple[DemandForecast, ...], tuple[str, ...]]:
    """The forecasts of GPU types and partitions, those with most demand, and why others have none.

    Raises NotInstalledError without statsmodels.
    """
    table = daily(frame, until_s)
    if not table.height:
        return (), ("No forecast: there is no whole week of history.",)
    types = by_gpu_type(table, until_s, dict(gpus))
    partitions = by_partition(table, until_s, dict(gpus))
    found = sorted([*types, *partitions], key=lambda one: -float(one.days.sum()))
    short = [one for one in found if one.weeks < LEAST_WEEKS]
    long = [one for one in found if one.weeks >= LEAST_WEEKS]
    notes = [
        f"No forecast of {one.key}: {LEAST_WEEKS} whole weeks of history are needed, "
        f"it has {one.weeks}."
        for one in short[:MOST]
    ]
    if len(long) > MOST:
        notes.append(f"Forecasts are of the {MOST} with most demand, of {len(long)}.")
    return tuple(forecast(one) for one in long[:MOST]), tuple(notes)


def forecast(demand: Demand) -> DemandForecast:
    """The forecast of one demand of at least LEAST_WEEKS weeks."""
    capacity = None if demand.gpus is None else demand.gpus * WEEK_S / 3600
    measured = demand.days.reshape(-1, WEEK_DAYS).sum(axis=1)
    weeks = [
        WeekDemand(start_s=demand.first_s + at * WEEK_S, measured=float(hours))
        for at, hours in enumerate(measured)
    ]
    start_s = demand.first_s + len(measured) * WEEK_S
    coming = [
        WeekDemand(start_s=start_s + at * WEEK_S, expected=wide, likely=likely)
        for at, (wide, likely) in enumerate(_ranges(demand.days))
    ]
    over = (
        week.start_s
        for week in coming
        if capacity is not None and week.expected is not None and week.expected.median > capacity
    )
    return DemandForecast(
        key=demand.key,
        weeks=(*weeks, *coming),
        capacity=capacity,
        saturates_s=next(over, None),
        method=METHOD,
    )


def _ranges(days: Floats) -> Sequence[tuple[Range, Range]]:
    """The central 95 % and 80 % of each week to come."""
    return [
        (Range(low=a, median=c, high=e), Range(low=b, median=c, high=d))
        for a, b, c, d, e in np.quantile(paths(days, WEEKS_AHEAD), LEVELS, axis=1).T.tolist()
    ]
