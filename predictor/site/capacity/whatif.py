"""The period as it would have been: a replay under other GPUs or another precision.

Baseline and change are replayed alike. A job that was identified takes its measured time, times the
ratio of two predictions; one that was not keeps its time and its GPU type. A job may run on a type
that was not there before, and one whose type loses GPUs on every type that it fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from profiles.errors import UnknownGpuError
from profiles.gpus import find_gpu

from ...errors import TraceError
from ...job.training_job import TrainingJob
from ...planning.cost import Terms
from ...planning.energy import power_of
from ..backtest.policies import ORDER_BOUND_S, ORDER_WEIGHT, learned_times
from ..backtest.workload import UNLIMITED_S, LimitBounds, Workload
from ..ended_job import EndedJob, JobState
from ..history.run import Run
from ..replay import Floats, Ints, Pool, Trace, replay
from ..similar.past_runs import PastRun
from .better import in_mixed_precision, on
from .clusters import changed
from .configurations import KEY, Configuration, Outlook, configurations, gpu_watts
from .jobs import PeriodJobs
from .report_data import Alternative, Range, ReportPeriod, Scenario, WhatIf

MOST_CONFIGURATIONS = 300
# What ``alternatives`` replays: so many of the last jobs, GPUs added to each of the largest types.
MOST_REPLAYED, MOST_TYPES, ADDED_GPUS, MOST_DRAWS = 10_000, 4, 8, 1000
ORDER = "order by expected run time"
DAY_S = 86400.0
_TEXTS = ("scheduler", "cluster", "job_id", "name", "user", "account", "partition", "gpu_type")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChange:
    """What is to be different; ``mixed`` sends jobs of full precision in mixed precision."""

    add: tuple[Pool, ...] = ()
    remove: tuple[Pool, ...] = ()
    mixed: bool = False

    def __str__(self) -> str:
        parts = [f"+{pool.gpus} {pool.name}" for pool in self.add]
        parts += [f"-{pool.gpus} {pool.name}" for pool in self.remove]
        return ", ".join([*parts, *(["mixed precision"] if self.mixed else [])]) or "nothing"


@dataclass(frozen=True, slots=True)
class _Moved:
    """Jobs as arrays: ``ratio`` and ``watts`` (n, pools), NaN where a job may not run."""

    ratio: Floats
    watts: Floats
    free: int


def what_if(
    jobs: PeriodJobs,
    plan: ClusterChange,
    outlook: Outlook,
    terms: Terms,
    pools: Sequence[Pool],
    *,
    most: int = MOST_CONFIGURATIONS,
) -> WhatIf:
    """Replay the period as it was and under the plan.

    Raises TraceError where there is nothing to replay, and for GPUs removed that are not there.
    """
    after = changed(pools, plan.add, plan.remove)
    table = jobs.table.sort("submit_s", "job_id")
    if not table.height:
        raise TraceError("no job ran in the period: there is nothing to replay")
    found = configurations(table, outlook, most)
    rows = _rows_of(table, found)
    before = _moves(table, found, rows, outlook, ClusterChange(), pools, pools, terms)
    moved = _moves(table, found, rows, outlook, plan, pools, after, terms)
    history = table.filter(_submitted_in(jobs.period))
    waited = (history["start_s"] - history["submit_s"]).mean()
    return WhatIf(
        change=str(plan),
        baseline=_scenario("as it was", table, jobs.period, before, pools, terms)[0],
        changed=_scenario(str(plan), table, jobs.period, moved, after, terms)[0],
        history_mean_wait_s=float(str(waited)) if waited is not None else 0.0,
        unmoved_jobs=table.height - moved.free,
    )


def alternatives(
    jobs: PeriodJobs,
    outlook: Outlook,
    terms: Terms,
    pools: Sequence[Pool],
    *,
    most: int = MOST_CONFIGURATIONS,
) -> tuple[Alternative, ...]:
    """What more GPUs, mixed precision and order by estimate would have brought, of the last jobs.

    At most MOST_REPLAYED jobs. Order gives each job the place that it would have with
    ORDER_WEIGHT times the run time that runs ended before its submission let expect. Each change
    in the mean wait has the interval of MOST_DRAWS draws of days, for the waits of a day go
    together; it says how far the period is typical, not how right the replay is.
    """
    table = jobs.table.sort("submit_s", "job_id").tail(MOST_REPLAYED)
    period = jobs.period
    if not table.filter(_submitted_in(period)).height:
        return ()
    found = configurations(table, outlook, most)
    rows = _rows_of(table, found)
    largest = sorted(pools, key=lambda pool: -pool.gpus)[:MOST_TYPES]
    plans = [ClusterChange(add=(Pool(name=pool.name, gpus=ADDED_GPUS),)) for pool in largest]
    plans += [ClusterChange(mixed=True)] if found else []
    as_it_was = _moves(table, found, rows, outlook, ClusterChange(), pools, pools, terms)
    baseline, waited = _scenario("as it was", table, period, as_it_was, pools, terms)
    replays = [(baseline.name, baseline, waited)]
    for plan in plans:
        after = changed(pools, plan.add, ())
        moved = _moves(table, found, rows, outlook, plan, pools, after, terms)
        replays.append((str(plan), *_scenario(str(plan), table, period, moved, after, terms)))
    first = _order(table, pools)
    told = _scenario(ORDER, table, period, as_it_was, pools, terms, priority=first)
    replays.append((ORDER, *told))
    submitted = table["submit_s"].to_numpy()
    return tuple(
        Alternative(
            change=name,
            jobs=one.jobs,
            mean_wait_s=one.mean_wait_s,
            p95_wait_s=one.p95_wait_s,
            change_s=_by_days(submitted, waits - waited),
            utilisation=one.utilisation,
            gpu_hours=one.gpu_hours,
        )
        for name, one, waits in replays
    )


def _order(table: pl.DataFrame, pools: Sequence[Pool]) -> Ints:
    """Ranks (n,), the first in the queue the highest: by submission and expected run time."""
    runs = [PastRun.of(_run(row)) for row in table.iter_rows(named=True)]
    submit_s = table["submit_s"].to_numpy()
    known = [run for run in runs if run is not None]
    none = np.zeros(len(known))
    work = Workload(
        pools=tuple(pools),
        submit_s=none,
        gpus=none.astype(np.int64),
        pool=none.astype(np.int64),
        run_s=none,
        asked_s=none,
        censored=none.astype(bool),
        bounds=LimitBounds(),
        skipped={},
        past=tuple(known),
    )
    expected_s = np.zeros(len(runs))
    is_known = np.array([run is not None for run in runs], dtype=bool)
    expected_s[is_known] = learned_times(work, [0.5]).order_s[0.5]
    key_s = submit_s + np.minimum(ORDER_WEIGHT * expected_s, ORDER_BOUND_S)
    ranks: Ints = len(runs) - np.argsort(np.argsort(key_s, kind="stable"))
    return ranks


def _run(row: Mapping[str, Any]) -> Run:
    """A row as a run of the history, as far as its past tells of others."""
    told: dict[str, Any] = {name: row[name] or "" for name in _TEXTS}
    told |= {name: row[name] for name in ("submit_s", "start_s", "end_s", "limit_s", "gpus")}
    known = row["state"] in {state.value for state in JobState}
    state = JobState(row["state"]) if known else JobState.UNKNOWN
    return Run(ended=EndedJob(state=state, **told), asked=row["config"] or "")


def _by_days(submit_s: Floats, longer_s: Floats) -> Range:
    """The mean of seconds (n,), NaN where there are none, over draws of whole days."""
    told = ~np.isnan(longer_s)
    _, day = np.unique(submit_s[told] // DAY_S, return_inverse=True)
    sums, counts = np.bincount(day, longer_s[told]), np.bincount(day)
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(len(counts), np.full(len(counts), 1 / len(counts)), MOST_DRAWS)
    means = (drawn @ sums) / np.maximum(1, drawn @ counts)
    low, high = np.quantile(means, (0.025, 0.975)).tolist()
    return Range(low=low, median=float(sums.sum() / counts.sum()), high=high)


def _rows_of(table: pl.DataFrame, found: Sequence[Configuration]) -> Ints:
    """The configuration (n,) of each job, -1 where it has none that was predicted."""
    place = pl.DataFrame(
        {
            "config": [one.config for one in found],
            "gpu_type": [one.gpu_type for one in found],
            "gpus": pl.Series([one.job.gpus for one in found], dtype=pl.Int64),
            "at": pl.Series(range(len(found)), dtype=pl.Int64),
        },
        schema_overrides={"config": pl.String, "gpu_type": pl.String},
    ).unique(KEY[:3], keep="first", maintain_order=True)
    joined = table.select(KEY[:3]).join(place, on=KEY[:3], how="left", maintain_order="left")
    rows: Ints = joined["at"].fill_null(-1).to_numpy()
    return rows


def _moves(
    table: pl.DataFrame,
    found: Sequence[Configuration],
    rows: Ints,
    outlook: Outlook,
    plan: ClusterChange,
    before: Sequence[Pool],
    after: Sequence[Pool],
    terms: Terms,
) -> _Moved:
    """Where each job may run, how much longer it takes there, and what a GPU draws."""
    names = [pool.name for pool in after]
    wanted = [_jobs_on(one, plan, before, names) for one in found]
    outlook.of(job for row in wanted for job in row.values())
    # The last row is that of jobs which are not known.
    ratio = np.full((len(found) + 1, len(names)), np.nan)
    watts = ratio.copy()
    for at, (one, row) in enumerate(zip(found, wanted, strict=True)):
        for name, job in row.items():
            to = outlook(job)
            if to is not None:
                ratio[at, names.index(name)] = to.step_s / one.found.step_s
                watts[at, names.index(name)] = gpu_watts(to, terms)
    own = _index(table["gpu_type"].to_list(), names)
    job_ratio, job_watts = ratio[rows], watts[rows]
    unknown = (rows < 0) & (own >= 0)
    job_ratio[unknown, own[unknown]] = 1.0
    job_watts[unknown, own[unknown]] = _board_watts(names, terms)[own[unknown]]
    return _Moved(job_ratio, job_watts, int((rows >= 0).sum()))


def _jobs_on(
    one: Configuration, plan: ClusterChange, before: Sequence[Pool], names: Sequence[str]
) -> Mapping[str, TrainingJob]:
    """What is sent, by the pools it may run in."""
    job = (in_mixed_precision(one.job) if plan.mixed else None) or one.job
    shrunk = one.gpu_type in {pool.name for pool in plan.remove}
    had = {pool.name for pool in before}
    found = {}
    for name in names:
        if name == one.gpu_type:
            found[name] = job
        elif shrunk or name not in had:
            moved = on(name, job)
            if moved is not None:
                found[name] = moved
    return found


def _scenario(
    name: str,
    table: pl.DataFrame,
    period: ReportPeriod,
    moved: _Moved,
    pools: Sequence[Pool],
    terms: Terms,
    *,
    priority: Ints | None = None,
) -> tuple[Scenario, Floats]:
    """A replay, and the wait (n,) of each job submitted in the period that starts in it."""
    sizes = np.array([pool.gpus for pool in pools])
    gpus = table["gpus"].to_numpy().astype(np.int64)
    may = ~np.isnan(moved.ratio) & (gpus[:, None] <= sizes)
    ok = may.any(axis=1)
    if not ok.any():
        raise TraceError(f"{name}: no job may run on any of these GPUs")
    gpus, ratio = gpus[ok], np.where(may, moved.ratio, np.nan)[ok]
    wall = table["wall_s"].to_numpy()[ok]
    limit = table["limit_s"].fill_null(UNLIMITED_S).to_numpy()[ok]
    # A limit follows the time where a job may run slower; grace over a limit was given before.
    limit = np.maximum(np.maximum(limit, wall), 1.0) * np.maximum(1.0, np.nanmax(ratio, axis=1))
    submit = table["submit_s"].to_numpy()[ok]
    out = replay(
        Trace(
            submit_s=submit,
            gpus=gpus,
            limit_s=limit,
            run_s=wall[:, None] * ratio,
            priority=None if priority is None else priority[ok],
        ),
        pools,
    )
    hours = gpus * (out.end_s - out.start_s) / 3600
    inside = (submit >= period.since_s) & (submit < period.until_s)
    waits = np.full(table.height, np.nan)
    waits[np.flatnonzero(ok)[inside]] = (out.start_s - submit)[inside]
    wait = waits[~np.isnan(waits)] if inside.any() else np.zeros(1)
    held_s = np.clip(out.end_s, period.since_s, period.until_s) - np.clip(
        out.start_s, period.since_s, period.until_s
    )
    watts = moved.watts[ok][np.arange(len(gpus)), out.pool]
    told = Scenario(
        name=name,
        gpus={pool.name: pool.gpus for pool in pools},
        jobs=len(gpus),
        never_started=int((~ok).sum()),
        mean_wait_s=float(wait.mean()),
        median_wait_s=float(np.median(wait)),
        p95_wait_s=float(np.quantile(wait, 0.95)),
        utilisation=float((gpus * held_s).sum() / 3600 / (sizes.sum() * period.hours)),
        gpu_hours=float(hours.sum()),
        kwh=None if np.isnan(watts).any() else float((hours * watts).sum() / 1000),
        cost=_cost(hours, out.pool, pools, terms),
    )
    return told, waits


def _cost(hours: Floats, pool: Ints, pools: Sequence[Pool], terms: Terms) -> float | None:
    prices = terms.tariff.per_gpu_hour
    each = np.array([prices.get(one.name, np.nan) for one in pools])[pool]
    return None if np.isnan(each).any() else float((hours * each).sum())


def _board_watts(names: Sequence[str], terms: Terms) -> Floats:
    """Board power at the meter: an upper bound for jobs of which nothing is known."""
    found = []
    for name in names:
        try:
            board_w = power_of(find_gpu(name)).board_w
        except UnknownGpuError:
            board_w = np.nan
        found.append(terms.tariff.overhead.watts(board_w))
    return np.array(found, dtype=np.float64)


def _index(values: Sequence[str], names: Sequence[str]) -> Ints:
    at = {name: place for place, name in enumerate(names)}
    return np.array([at.get(value, -1) for value in values], dtype=np.int64)


def _submitted_in(period: ReportPeriod) -> pl.Expr:
    return pl.col("submit_s").is_between(period.since_s, period.until_s, closed="left")
