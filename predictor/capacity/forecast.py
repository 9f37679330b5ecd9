"""Demand of the weeks to come: exponential smoothing with a weekly season, by GPU type.

The model is ETS with additive error, a damped additive trend and a season of seven days on daily
GPU-hours (Hyndman and Athanasopoulos, Forecasting: Principles and Practice, 3rd ed., chapter 8).
Weeks are sums over simulated days, so that their interval holds how days err together.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from ..errors import NotInstalledError
from ..replay import Floats
from .report_data import Forecast, Range, WeekDemand

DAY_S, WEEK_DAYS = 86400.0, 7
WEEK_S = WEEK_DAYS * DAY_S
# Monday, 5 January 1970, 00:00 UTC.
FIRST_MONDAY_S = 4 * DAY_S
LEAST_WEEKS = 5
WEEKS_AHEAD = 8
PATHS = 500
METHOD = (
    f"ETS(A,Ad,A) on days, season of a week; weeks are sums of {PATHS} paths with "
    "resampled errors, central 95 %"
)


def demands(frame: pl.LazyFrame, until_s: float) -> pl.DataFrame:
    """GPU-hours of the jobs submitted on each day, by GPU type, of whole weeks before ``until_s``.

    Hours are those the jobs took in the end, whenever they ran; jobs that never ran ask for none.
    """
    end_s = FIRST_MONDAY_S + (until_s - FIRST_MONDAY_S) // WEEK_S * WEEK_S
    hours = pl.col("gpus") * (pl.col("end_s") - pl.col("start_s")) / 3600
    return (
        frame.select("submit_s", "start_s", "end_s", "gpus", "gpu_type")
        .filter((pl.col("end_s") >= pl.col("start_s")) & (pl.col("submit_s") < end_s))
        .filter(pl.col("start_s") >= pl.col("submit_s"), pl.col("gpus") >= 1)
        .with_columns(day=(pl.col("submit_s") / DAY_S).floor().cast(pl.Int64), hours=hours)
        .group_by("gpu_type", "day")
        .agg(pl.col("hours").sum())
        .drop_nulls("gpu_type")
        .sort("gpu_type", "day")
        .collect()
    )


def forecasts(
    frame: pl.LazyFrame, until_s: float, gpus: Mapping[str, int]
) -> tuple[tuple[Forecast, ...], tuple[str, ...]]:
    """The forecast of each GPU type, and why others have none.

    Raises NotInstalledError without statsmodels.
    """
    daily = demands(frame, until_s)
    if not daily.height:
        return (), ("no forecast: no whole week of history",)
    first = _monday_after(float(str(daily["day"].min())) * DAY_S)
    last = FIRST_MONDAY_S + (until_s - FIRST_MONDAY_S) // WEEK_S * WEEK_S
    weeks = round((last - first) / WEEK_S)
    if weeks < LEAST_WEEKS:
        return (), (
            f"no forecast: {max(0, weeks)} whole weeks of history, {LEAST_WEEKS} are needed",
        )
    found = []
    for (name,), part in daily.group_by("gpu_type", maintain_order=True):
        days = np.zeros(weeks * WEEK_DAYS)
        place = part["day"].to_numpy() - round(first / DAY_S)
        inside = place >= 0
        days[place[inside]] = part["hours"].to_numpy()[inside]
        found.append(forecast(str(name), days, first, gpus.get(str(name))))
    return tuple(found), ()


def forecast(name: str, days: Floats, first_s: float, gpus: int | None) -> Forecast:
    """The forecast from daily GPU-hours (whole weeks,) since ``first_s``, a Monday."""
    capacity = None if gpus is None else gpus * WEEK_S / 3600
    measured = days.reshape(-1, WEEK_DAYS).sum(axis=1)
    expected = _expected(_paths(days))
    weeks = [
        WeekDemand(start_s=first_s + at * WEEK_S, measured=float(hours))
        for at, hours in enumerate(measured)
    ]
    start_s = first_s + len(measured) * WEEK_S
    weeks += [
        WeekDemand(start_s=start_s + at * WEEK_S, expected=hours)
        for at, hours in enumerate(expected)
    ]
    over = (
        week.start_s for week in weeks
        if capacity is not None and week.expected is not None and week.expected.median > capacity
    )  # fmt: skip
    return Forecast(
        key=name, weeks=tuple(weeks), capacity=capacity, saturates_s=next(over, None), method=METHOD
    )


def _expected(paths: Floats) -> Sequence[Range]:
    sums = paths.reshape(WEEKS_AHEAD, WEEK_DAYS, -1).sum(axis=1)
    levels = np.quantile(sums, (0.025, 0.5, 0.975), axis=1).T
    return [Range(low=low, median=mid, high=high) for low, mid, high in levels.tolist()]


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
            days / days.mean(), error="add", trend="add", damped_trend=True, seasonal="add",
            seasonal_periods=WEEK_DAYS,
        ).fit(disp=False)  # fmt: skip
        ahead = WEEKS_AHEAD * WEEK_DAYS
        errors = np.random.default_rng(0).choice(np.asarray(fitted.resid), (ahead, PATHS))
        paths = fitted.simulate(ahead, anchor="end", repetitions=PATHS, random_errors=errors)
    found: Floats = np.maximum(0.0, np.asarray(paths, dtype=np.float64)) * days.mean()
    return found


def _monday_after(second: float) -> float:
    return float(FIRST_MONDAY_S + np.ceil((second - FIRST_MONDAY_S) / WEEK_S) * WEEK_S)
