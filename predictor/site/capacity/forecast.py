"""What was asked for on each day, and what will be in the weeks to come.

A job asks on the day it is submitted for all the hours it takes. Of one that has not ended they are
those it has had, and what its estimate says is left. Weeks to come are sums over days that are
drawn, so that their bands hold how days err together.

The model is a level that wanders and drifts, a season of seven days, and noise (Harvey,
Forecasting, Structural Time Series Models and the Kalman Filter, 1989), on daily GPU-hours. How
fast the level wanders and drifts cannot be told from a few weeks: a fit that picks one answer has
bands that are too narrow. So nothing is picked. The level's rate of change and the likely size of
the drift are on a grid, each point weighted by how well it explains the history; level, season and
the size of the noise have flat priors, so that draws have the tails of Student's t. A history that
jumped makes fast rates likely, and the bands wide.

``benchmarks/forecast.py`` checks the bands from rolling origins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from ...optional import needs
from ..replay import Floats
from ..similar.request import JobRequest
from .jobs import COLUMNS, UNREAD, run_of
from .queue import Estimates
from .report_data import DemandForecast, Range, WeekDemand

PATHS = 4000
WEEK_DAYS = 7
# Weight of the last week in an exponentially smoothed level of weeks, all as likely: from one that
# hardly moves to one that forgets all but the last week.
SMOOTHING = (np.arange(10) + 0.5) / 10
# Standard deviation of the drift before any data, a week, over that of a week's noise: as good as
# none, or growth that shows within weeks.
DRIFTS = (0.05, 0.5)
LEAST_WEEKS = 5
WEEKS_AHEAD = 8
# Forecasts of one report, those with the most GPU-hours.
MOST = 12
METHOD = (
    "a level that wanders and drifts, and a season of a week, on days; "
    f"{PATHS:,} draws over how fast it changes, central 80 % and 95 % of weeks"
)
LEVELS = (0.025, 0.1, 0.5, 0.9, 0.975)
DAY_S = 86400.0
WEEK_S = WEEK_DAYS * DAY_S
# Monday, 5 January 1970, 00:00 UTC.
FIRST_MONDAY_S = 4 * DAY_S
# What is left of a job is the mean of its estimate at these levels.
_LEFT_LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Daily GPU-hours (whole weeks,) of one partition or GPU type since ``first_s``, a Monday.

    ``gpus`` serve it and nothing else, None where that is not known.
    """

    key: str
    first_s: float
    days: Floats
    gpus: int | None

    @property
    def weeks(self) -> int:
        """Whole weeks of it."""
        return len(self.days) // WEEK_DAYS


def forecasts(
    frame: pl.LazyFrame, until_s: float, gpus: Mapping[str, int], estimate: Estimates
) -> tuple[tuple[DemandForecast, ...], tuple[str, ...]]:
    """The forecasts of GPU types and partitions, those with most demand, and why others have none.

    Raises NotInstalledError without statsmodels.
    """
    table = daily(frame, until_s, estimate)
    if not table.height:
        return (), ("No forecast: there is no whole week of history.",)
    both = by_gpu_type(table, until_s, gpus) + by_partition(table, until_s, gpus)
    found = sorted(both, key=lambda one: -float(one.days.sum()))
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
    drawn = np.quantile(paths(demand.days, WEEKS_AHEAD), LEVELS, axis=1).T.tolist()
    coming = [
        WeekDemand(
            start_s=start_s + at * WEEK_S,
            expected=Range(low=lowest, median=median, high=highest),
            likely=Range(low=low, median=median, high=high),
        )
        for at, (lowest, low, median, high, highest) in enumerate(drawn)
    ]
    over = [
        week.start_s
        for week, quantiles in zip(coming, drawn, strict=True)
        if capacity is not None and quantiles[2] > capacity
    ]
    return DemandForecast(
        key=demand.key,
        weeks=(*weeks, *coming),
        capacity=capacity,
        saturates_s=over[0] if over else None,
        method=METHOD,
    )


def daily(frame: pl.LazyFrame, until_s: float, estimate: Estimates) -> pl.DataFrame:
    """GPU-hours by partition, GPU type and day, of whole weeks, as it was known at ``until_s``.

    Jobs that never ran ask for none, nor do those whose clock makes no sense.
    """
    known = (
        frame.select(COLUMNS)
        .with_columns(
            pl.col("partition", "gpu_type").fill_null(""),
            start_s=pl.when(pl.col("start_s") <= until_s).then("start_s"),
            end_s=pl.when(pl.col("end_s") <= until_s).then("end_s"),
        )
        .filter(
            ~UNREAD,
            pl.col("gpus") >= 1,
            pl.col("submit_s") < last_monday(until_s),
            pl.col("start_s").is_not_null() | pl.col("end_s").is_null(),
            (pl.col("start_s") >= pl.col("submit_s")).fill_null(value=True),
            (pl.col("end_s") >= pl.col("start_s")).fill_null(value=True),
        )
    )
    still = known.filter(pl.col("end_s").is_null()).collect()
    walls_s = [_wall_s(row, until_s, estimate) for row in still.iter_rows(named=True)]
    ended = known.filter(pl.col("end_s").is_not_null())
    both = (
        ended.with_columns(wall_s=pl.col("end_s") - pl.col("start_s")),
        still.lazy().with_columns(wall_s=pl.Series(walls_s, dtype=pl.Float64)),
    )
    by = "partition", "gpu_type", (pl.col("submit_s") / DAY_S).floor().cast(pl.Int64).alias("day")
    hours = (pl.col("gpus") * pl.col("wall_s")).sum() / 3600
    return (
        pl.concat(both).group_by(by).agg(hours=hours).sort("partition", "gpu_type", "day").collect()
    )


def _wall_s(row: Mapping[str, Any], until_s: float, estimate: Estimates) -> float:
    """Of a job that has not ended: what it has had, and what is left of it."""
    had_s = until_s - (row["start_s"] or until_s)
    found = estimate(JobRequest.of(run_of(row)))
    return had_s + float(np.mean([found.left_s(level, had_s) for level in _LEFT_LEVELS]))


def by_gpu_type(table: pl.DataFrame, until_s: float, gpus: Mapping[str, int]) -> list[Demand]:
    """The demand of each GPU type that jobs name, by name."""
    groups = _groups(table, "gpu_type")
    return [_demand(name, rows, until_s, gpus.get(name)) for name, rows in groups]


def by_partition(table: pl.DataFrame, until_s: float, gpus: Mapping[str, int]) -> list[Demand]:
    """The demand of each partition that is not just one GPU type, by name.

    Its GPUs are known where no other partition has jobs on their types.
    """
    pairs = table.filter(pl.col("partition") != "").select("partition", "gpu_type").unique()
    found = []
    for partition, rows in _groups(table, "partition"):
        types = set(rows["gpu_type"])
        alone = pairs.filter(pl.col("gpu_type").is_in(list(types))).height
        if alone == len(types) == 1:
            continue
        known = alone == len(types) and types <= gpus.keys()
        there = sum(gpus[name] for name in types) if known else None
        found.append(_demand(partition, rows, until_s, there))
    return found


def last_monday(until_s: float) -> float:
    """Where the last whole week ends."""
    return FIRST_MONDAY_S + (until_s - FIRST_MONDAY_S) // WEEK_S * WEEK_S


def _groups(table: pl.DataFrame, by: str) -> list[tuple[str, pl.DataFrame]]:
    named = table.filter(pl.col(by) != "").sort(by)
    return [(str(name), rows) for (name,), rows in named.group_by(by, maintain_order=True)]


def _demand(key: str, rows: pl.DataFrame, until_s: float, gpus: int | None) -> Demand:
    """From the first whole week of its own."""
    place, hours = rows["day"].to_numpy(), rows["hours"].to_numpy()
    first_s = -(-(place.min() * DAY_S - FIRST_MONDAY_S) // WEEK_S) * WEEK_S + FIRST_MONDAY_S
    count = max(0, round((last_monday(until_s) - first_s) / DAY_S))
    place = place - round(first_s / DAY_S)
    days = np.zeros(count)
    np.add.at(days, place[place >= 0], hours[place >= 0])
    return Demand(key=key, first_s=float(first_s), days=days, gpus=gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """What the history says at one point of the grid; variances are over that of a day's noise.

    ``state`` (2,) is the level and drift of the day that follows, ``covariance`` (2, 2) theirs.
    ``squares`` sums the ``freedom`` standardised errors of forecasting each day from those before.
    """

    step_variance: float
    state: Floats
    covariance: Floats
    squares: float
    freedom: int
    log_likelihood: float


def paths(days: Floats, weeks: int) -> Floats:
    """Draws (weeks, PATHS) of the weeks after daily GPU-hours (whole weeks,), none below nought.

    The same for the same history. Raises NotInstalledError without statsmodels.
    """
    if np.ptp(days) == 0:  # nothing varies: there is nothing to learn from
        return np.full((weeks, PATHS), days[0] * WEEK_DAYS)
    scale = float(days.mean())
    fits = _fits(days / scale)
    likelihood = np.array([fit.log_likelihood for fit in fits])
    weight = np.exp(likelihood - likelihood.max())
    rng = np.random.default_rng(0)
    counts = rng.multinomial(PATHS, weight / weight.sum())
    days_ahead = weeks * WEEK_DAYS
    drawn = [_draw(fit, int(n), days_ahead, rng) for fit, n in zip(fits, counts, strict=True)]
    sums = np.hstack(drawn).reshape(weeks, WEEK_DAYS, PATHS).sum(axis=1)
    found: Floats = np.maximum(0.0, sums) * scale
    return found


def step_variance(smoothing: float) -> float:
    """Of the level from day to day, over that of a day's noise, at one weight of SMOOTHING.

    A local level has the weight ``a`` where its steps have ``a**2 / (1 - a)`` times the variance of
    its noise (Harvey, 1989, section 4.1.2). The sum of a week has the noise of 7 days, and moves by
    7 times what 7 steps of the level come to.
    """
    return float(smoothing**2 / (1 - smoothing) / WEEK_DAYS**2)


def _fits(days: Floats) -> list[_Fit]:
    """The Kalman filter over the days, at each point of the grid."""
    with needs("report"):
        from statsmodels.tsa.statespace.initialization import Initialization
        from statsmodels.tsa.statespace.structural import UnobservedComponents
    model = UnobservedComponents(
        days, "local linear deterministic trend", seasonal=WEEK_DAYS, stochastic_seasonal=False
    )
    found = []
    for drift in DRIFTS:
        start = Initialization(model.k_states)
        start.set(0, "diffuse")
        # Of the drift of a day, over that of a day's noise; a week's sum drifts by 7 * 7 of it.
        variance = drift**2 / WEEK_DAYS**3
        start.set(1, "known", constant=[0.0], stationary_cov=[[variance]])
        start.set((2, model.k_states), "diffuse")
        model.ssm.initialization = start
        found += [_fit(model, step_variance(float(weight))) for weight in SMOOTHING]
    return found


def _fit(model: Any, step: float) -> _Fit:
    """One point of the grid; its likelihood is integrated over the size of the noise."""
    model.update([1.0, step])
    found = model.ssm.filter()
    errors = found.forecasts_error[0, found.nobs_diffuse :]
    variances = found.forecasts_error_cov[0, 0, found.nobs_diffuse :]
    squares = max(float((errors**2 / variances).sum()), float(np.finfo(np.float64).tiny))
    return _Fit(
        step_variance=step,
        state=found.predicted_state[:2, -1],
        covariance=found.predicted_state_cov[:2, :2, -1],
        squares=squares,
        freedom=len(errors),
        log_likelihood=-float(np.log(variances).sum() + len(errors) * np.log(squares)) / 2,
    )


def _draw(fit: _Fit, count: int, days: int, rng: np.random.Generator) -> Floats:
    """Days to come (days, count) without their season, which is nought over a week."""
    noise = np.sqrt(fit.squares / rng.chisquare(fit.freedom, count))
    about = rng.multivariate_normal(np.zeros(2), fit.covariance, count, check_valid="ignore")
    level, drift = fit.state[:, None] + noise * about.T
    steps = drift + noise * np.sqrt(fit.step_variance) * rng.standard_normal((days, count))
    steps[0] = level
    found: Floats = steps.cumsum(axis=0) + noise * rng.standard_normal((days, count))
    return found
