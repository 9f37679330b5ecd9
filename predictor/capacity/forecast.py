"""Demand of the weeks to come: exponential smoothing with a weekly season.

The model is ETS with additive error and a season of seven days on daily GPU-hours, without a trend
(Hyndman and Athanasopoulos, Forecasting: Principles and Practice, 3rd ed., chapter 8): at the
lengths of history that a cluster has, a fitted trend made intervals of the backtest in
``benchmarks/forecast.py`` miss more often, not less. Weeks are sums over simulated days, so that
their interval holds how days err together. The errors that are resampled are scaled for the
parameters that were fitted to them, for in-sample errors are too small.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from ..errors import NotInstalledError
from ..replay import Floats
from .demand import WEEK_DAYS, WEEK_S, Demand, by_gpu_type, by_partition, daily
from .report_data import Forecast, Range, WeekDemand

LEAST_WEEKS = 5
WEEKS_AHEAD = 8
PATHS = 500
# Forecasts of one report, those with the most GPU-hours.
MOST = 12
METHOD = (
    f"ETS(A,N,A) on days, season of a week; weeks are sums of {PATHS} paths with "
    "resampled errors, central 80 % and 95 %"
)
LEVELS = (0.025, 0.1, 0.5, 0.9, 0.975)


def forecasts(
    frame: pl.LazyFrame, until_s: float, gpus: Mapping[str, int]
) -> tuple[tuple[Forecast, ...], tuple[str, ...]]:
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


def forecast(demand: Demand) -> Forecast:
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
        week.start_s for week in coming
        if capacity is not None and week.expected is not None and week.expected.median > capacity
    )  # fmt: skip
    return Forecast(
        key=demand.key, weeks=(*weeks, *coming), capacity=capacity, saturates_s=next(over, None),
        method=METHOD,
    )  # fmt: skip


def _ranges(days: Floats) -> Sequence[tuple[Range, Range]]:
    """The central 95 % and 80 % of each week to come."""
    sums = _paths(days).reshape(WEEKS_AHEAD, WEEK_DAYS, -1).sum(axis=1)
    return [
        (Range(low=a, median=c, high=e), Range(low=b, median=c, high=d))
        for a, b, c, d, e in np.quantile(sums, LEVELS, axis=1).T.tolist()
    ]


def _paths(days: Floats) -> Floats:
    """Simulated days to come (days, paths), none below nought."""
    if np.ptp(days) == 0:  # nothing varies: there is nothing to fit
        return np.full((WEEKS_AHEAD * WEEK_DAYS, 1), days[0])
    try:
        from statsmodels.tsa.exponential_smoothing.ets import ETSModel
    except ModuleNotFoundError as error:
        raise NotInstalledError.of(error, "report") from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence: the interval is from what was fitted
        fitted = ETSModel(
            days / days.mean(), error="add", seasonal="add", seasonal_periods=WEEK_DAYS
        ).fit(disp=False)
        ahead = WEEKS_AHEAD * WEEK_DAYS
        residuals = np.asarray(fitted.resid)
        scale = np.sqrt(len(residuals) / (len(residuals) - len(fitted.params)))
        errors = np.random.default_rng(0).choice(scale * residuals, (ahead, PATHS))
        paths = fitted.simulate(ahead, anchor="end", repetitions=PATHS, random_errors=errors)
    found: Floats = np.maximum(0.0, np.asarray(paths, dtype=np.float64)) * days.mean()
    return found
