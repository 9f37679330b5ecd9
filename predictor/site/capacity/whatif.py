"""The period as it would have been: a replay under other GPUs or another precision.

Baseline and change are replayed alike. A job that was identified takes its measured time, times the
ratio of two predictions; one that was not keeps its time and its GPU type. A job may run on a type
that was not there before, and one whose type loses GPUs on every type that it fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from profiles.errors import UnknownGpuError
from profiles.gpus import find_gpu

from ...errors import TraceError
from ...job.training_job import TrainingJob
from ...planning.cost import Terms
from ...planning.energy import power_of
from ..backtest.workload import UNLIMITED_S
from ..replay import Floats, Ints, Pool, Trace, replay
from .better import in_mixed_precision, on
from .clusters import changed
from .configurations import KEY, Configuration, Outlook, configurations, gpu_watts
from .jobs import PeriodJobs
from .report_data import ReportPeriod, Scenario, WhatIf

MOST_CONFIGURATIONS = 300


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
        baseline=_scenario("as it was", table, jobs.period, before, pools, terms),
        changed=_scenario(str(plan), table, jobs.period, moved, after, terms),
        history_mean_wait_s=float(str(waited)) if waited is not None else 0.0,
        unmoved_jobs=table.height - moved.free,
    )


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
) -> Scenario:
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
        Trace(submit_s=submit, gpus=gpus, limit_s=limit, run_s=wall[:, None] * ratio), pools
    )
    hours = gpus * (out.end_s - out.start_s) / 3600
    wait = (out.start_s - submit)[(submit >= period.since_s) & (submit < period.until_s)]
    wait = wait if len(wait) else np.zeros(1)
    inside = np.clip(out.end_s, period.since_s, period.until_s) - np.clip(
        out.start_s, period.since_s, period.until_s
    )
    watts = moved.watts[ok][np.arange(len(gpus)), out.pool]
    return Scenario(
        name=name,
        gpus={pool.name: pool.gpus for pool in pools},
        jobs=len(gpus),
        never_started=int((~ok).sum()),
        mean_wait_s=float(wait.mean()),
        median_wait_s=float(np.median(wait)),
        p95_wait_s=float(np.quantile(wait, 0.95)),
        utilisation=float((gpus * inside).sum() / 3600 / (sizes.sum() * period.hours)),
        gpu_hours=float(hours.sum()),
        kwh=None if np.isnan(watts).any() else float((hours * watts).sum() / 1000),
        cost=_cost(hours, out.pool, pools, terms),
    )


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
