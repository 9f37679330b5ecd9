"""The period as it would have been: a replay under other GPUs or another precision.

Baseline and change are replayed alike. A job that was identified takes its measured time, times the
ratio of two predictions; one that was not keeps its time and its GPU type. A job may run on a type
that was not there before, and one whose type loses GPUs on every type that it fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import InitVar, dataclass

import numpy as np
import polars as pl

from profiles.gpus import gpus, known_gpu

from ...errors import TraceError
from ...job.training_job import TrainingJob
from ...planning.cost import Terms, power_of
from ..backtest.workload import ORDER_BOUND_S, ORDER_WEIGHT
from ..history.cells import UNLIMITED_S
from ..history.ingest import Period
from ..replay import Floats, Ints, Pool, Trace, replay
from ..similar.estimate import estimate_job
from ..similar.memory import SiteMemory
from ..similar.past_runs import PastRun
from ..similar.run_times import RunTimes
from .configurations import KEY, TAIL, Configuration, Outlook, configurations, gpu_watts
from .jobs import PeriodJobs, run_of
from .opportunities import in_mixed_precision, on
from .report_data import Alternative, Range, Scenario, WhatIf

MOST_CONFIGURATIONS = 300
# What ``alternatives`` replays: so many of the last jobs, GPUs added to each of the largest types.
MOST_REPLAYED, MOST_TYPES, ADDED_GPUS, MOST_DRAWS = 10_000, 4, 8, 1000
AS_IT_WAS, ORDER = "as it was", "order by expected run time"
DAY_S = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChange:
    """What is to be different; ``mixed`` sends jobs of full precision in mixed precision."""

    add: tuple[Pool, ...] = ()
    remove: tuple[Pool, ...] = ()
    mixed: bool = False

    def __str__(self) -> str:
        parts = [f"+{pool.gpus} {pool.name}" for pool in self.add]
        parts += [f"-{pool.gpus} {pool.name}" for pool in self.remove]
        return ", ".join([*parts, *(["mixed precision"] if self.mixed else [])]) or AS_IT_WAS

    def of(self, pools: Sequence[Pool]) -> tuple[Pool, ...]:
        """The pools with more and fewer GPUs, without those that are left with none.

        Raises TraceError where GPUs are removed that are not there, or none are left.
        """
        had = {pool.name: pool for pool in (*self.add, *pools)}
        counts = {pool.name: pool.gpus for pool in pools}
        for pool in self.add:
            if pool.name not in counts and pool.name not in gpus():
                known = ", ".join(("a name of `precision-time gpus`", *counts))
                raise TraceError(f"invalid add={pool.name}; expected {known}")
            counts[pool.name] = counts.get(pool.name, 0) + pool.gpus
        for pool in self.remove:
            there = counts.get(pool.name, 0)
            if there < pool.gpus:
                known = ", ".join(f"{name}:{count}" for name, count in counts.items())
                raise TraceError(
                    f"invalid remove={pool.name}:{pool.gpus}; there are {there}; types are {known}"
                )
            counts[pool.name] -= pool.gpus
        if not any(counts.values()):
            raise TraceError("remove: no GPU is left to replay on")
        found = []
        for name, number in counts.items():
            per_node = had[name].gpus_per_node
            whole = per_node if per_node is not None and number % per_node == 0 else None
            found += [Pool(name=name, gpus=number, gpus_per_node=whole)] if number else []
        return tuple(found)


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
    plan.of(pools)
    table = jobs.table.sort("submit_s", "job_id")
    if not table.height:
        raise TraceError("no job ran in the period: there is nothing to replay")
    replays = _Replays(jobs.period, table, outlook, terms, pools, most)
    inside = table.filter(pl.Series(replays.inside))
    waited = (inside["start_s"] - inside["submit_s"]).to_numpy()
    return WhatIf(
        change=str(plan),
        baseline=replays.under(ClusterChange())[0],
        changed=replays.under(plan)[0],
        history_mean_wait_s=float(waited.mean()) if len(waited) else 0.0,
        unmoved_jobs=int((replays.rows < 0).sum()),
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
    replays = _Replays(jobs.period, table, outlook, terms, pools, most)
    if not replays.inside.any():
        return ()
    largest = sorted(pools, key=lambda pool: -pool.gpus)[:MOST_TYPES]
    plans = [ClusterChange(add=(Pool(name=pool.name, gpus=ADDED_GPUS),)) for pool in largest]
    plans += [ClusterChange(mixed=True)] if replays.found else []
    told = [replays.under(plan) for plan in (ClusterChange(), *plans)]
    told.append(replays.under(ClusterChange(), ORDER, priority=_order(table)))
    submitted, waited = table["submit_s"].to_numpy(), told[0][1]
    return tuple(
        Alternative(
            change=one.name,
            jobs=one.jobs,
            mean_wait_s=one.mean_wait_s,
            p95_wait_s=one.p95_wait_s,
            change_s=_by_days(submitted, waits - waited),
            utilisation=one.utilisation,
            gpu_hours=one.gpu_hours,
        )
        for one, waits in told
    )


@dataclass(eq=False)
class _Replays:
    """Replays of the jobs of a table, each under another change of what was.

    ``found`` are their configurations, ``rows`` (n,) that of each job, -1 where it has none that
    was predicted; ``inside`` (n,) were submitted in the period.
    """

    period: Period
    table: pl.DataFrame
    outlook: Outlook
    terms: Terms
    pools: Sequence[Pool]
    most: InitVar[int]

    def __post_init__(self, most: int) -> None:
        table = self.table
        self.found = configurations(table, self.outlook, most)
        self.submit_s = table["submit_s"].to_numpy()
        self.inside = (self.submit_s >= self.period.since_s) & (self.submit_s < self.period.until_s)
        keys = [(one.config, one.gpu_type, one.job.gpus, at) for at, one in enumerate(self.found)]
        place = pl.DataFrame(
            keys, schema=table.select(KEY[:3]).schema | {"at": pl.Int64}, orient="row"
        ).unique(KEY[:3], keep="first", maintain_order=True)
        joined = table.select(KEY[:3]).join(place, on=KEY[:3], how="left", maintain_order="left")
        self.rows: Ints = joined["at"].fill_null(-1).to_numpy()

    def under(
        self, plan: ClusterChange, name: str = "", *, priority: Ints | None = None
    ) -> tuple[Scenario, Floats]:
        """A replay, and the wait (n,) of each job submitted in the period that starts in it."""
        table, name, pools = self.table, name or str(plan), plan.of(self.pools)
        ratio, watts = self._moves(plan, pools)
        sizes = np.array([pool.gpus for pool in pools])
        gpus = table["gpus"].to_numpy().astype(np.int64)
        may = ~np.isnan(ratio) & (gpus[:, None] <= sizes)
        ok = may.any(axis=1)
        if not ok.any():
            raise TraceError(f"{name}: no job may run on any of these GPUs")
        gpus, ratio, submit_s = gpus[ok], np.where(may, ratio, np.nan)[ok], self.submit_s[ok]
        wall = table["wall_s"].to_numpy()[ok]
        limit = table["limit_s"].fill_null(UNLIMITED_S).to_numpy()[ok]
        # A limit follows the time where a job may run slower; grace over a limit was given before.
        slowest = np.maximum(1.0, np.nanmax(ratio, axis=1))
        trace = Trace(
            submit_s=submit_s,
            gpus=gpus,
            limit_s=np.maximum(np.maximum(limit, wall), 1.0) * slowest,
            run_s=wall[:, None] * ratio,
            priority=None if priority is None else priority[ok],
        )
        out = replay(trace, pools)
        hours = gpus * (out.end_s - out.start_s) / 3600
        waits = np.where(self.inside, 0.0, np.nan)
        waits[~ok] = np.nan
        waits[ok] += out.start_s - submit_s
        wait = waits[~np.isnan(waits)] if self.inside[ok].any() else np.zeros(1)
        since_s, until_s = self.period.since_s, self.period.until_s
        held_s = np.clip(out.end_s, since_s, until_s) - np.clip(out.start_s, since_s, until_s)
        drawn = watts[ok][np.arange(len(gpus)), out.pool]
        prices = self.terms.tariff.per_gpu_hour
        price = np.array([prices.get(one.name, np.nan) for one in pools])[out.pool]
        told = Scenario(
            name=name,
            gpus={pool.name: pool.gpus for pool in pools},
            jobs=len(gpus),
            never_started=int((~ok).sum()),
            mean_wait_s=float(wait.mean()),
            median_wait_s=float(np.median(wait)),
            p95_wait_s=float(np.quantile(wait, 0.95)),
            utilisation=float((gpus * held_s).sum() / 3600 / (sizes.sum() * self.period.hours)),
            gpu_hours=float(hours.sum()),
            kwh=None if np.isnan(drawn).any() else float((hours * drawn).sum() / 1000),
            cost=None if np.isnan(price).any() else float((hours * price).sum()),
        )
        return told, waits

    def _moves(self, plan: ClusterChange, after: Sequence[Pool]) -> tuple[Floats, Floats]:
        """How much longer jobs take, and the watts of a GPU (n, pools); NaN where they may not run.

        Of a job that is not known the watts are an upper bound: board power at the meter.
        """
        names = [pool.name for pool in after]
        sent = [dict(self._sent(one, plan, names)) for one in self.found]
        self.outlook.of(job for row in sent for job in row.values())
        # The last row is that of jobs which are not known.
        ratio = np.full((len(self.found) + 1, len(names)), np.nan)
        watts = ratio.copy()
        for at, (one, row) in enumerate(zip(self.found, sent, strict=True)):
            for name, job in row.items():
                to = self.outlook(job)
                if to is not None:
                    ratio[at, names.index(name)] = to.step_s / one.found.step_s
                    watts[at, names.index(name)] = gpu_watts(to, self.terms)
        job_ratio, job_watts = ratio[self.rows], watts[self.rows]
        types = self.table["gpu_type"].to_numpy()
        for at, name in enumerate(names):
            stays = (self.rows < 0) & (types == name)
            job_ratio[stays, at] = 1.0
            if (gpu := known_gpu(name)) is not None:
                watts_each = self.terms.tariff.overhead.watts(power_of(gpu).board_w)
                job_watts[stays, at] = watts_each
        return job_ratio, job_watts

    def _sent(
        self, one: Configuration, plan: ClusterChange, names: Sequence[str]
    ) -> Iterator[tuple[str, TrainingJob]]:
        """What is sent, by the pools it may run in."""
        job = (in_mixed_precision(one.job) if plan.mixed else None) or one.job
        shrunk = one.gpu_type in {pool.name for pool in plan.remove}
        had = {pool.name for pool in self.pools}
        for name in names:
            if name == one.gpu_type:
                yield name, job
            elif shrunk or name not in had:
                moved = on(name, job)
                if moved is not None:
                    yield name, moved


def _order(table: pl.DataFrame) -> Ints:
    """Ranks (n,), the first in the queue the highest: by submission and expected run time."""
    runs = [PastRun.of(run_of(row)) for row in table.iter_rows(named=True)]
    submit_s = table["submit_s"].to_numpy()
    places = [at for at, run in enumerate(runs) if run is not None]
    expected_s = np.zeros(len(runs))
    memory = SiteMemory()

    def expected(at: int, run: PastRun) -> RunTimes:
        found = estimate_job(run.request, memory)
        expected_s[places[at]] = found.order_s(0.5)
        return found.times

    memory.learn([run for run in runs if run is not None], expected)
    key_s = submit_s + np.minimum(ORDER_WEIGHT * expected_s, ORDER_BOUND_S)
    ranks: Ints = len(runs) - np.argsort(np.argsort(key_s, kind="stable"))
    return ranks


def _by_days(submit_s: Floats, longer_s: Floats) -> Range:
    """The mean of seconds (n,), NaN where there are none, over draws of whole days."""
    told = ~np.isnan(longer_s)
    _, day = np.unique(submit_s[told] // DAY_S, return_inverse=True)
    sums, counts = np.bincount(day, longer_s[told]), np.bincount(day)
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(len(counts), np.full(len(counts), 1 / len(counts)), MOST_DRAWS)
    means = (drawn @ sums) / np.maximum(1, drawn @ counts)
    low, high = np.quantile(means, (TAIL, 1 - TAIL)).tolist()
    return Range(low=low, median=float(sums.sum() / counts.sum()), high=high)
