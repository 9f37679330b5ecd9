"""Where GPU-hours went: sums over the jobs of a period."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import polars as pl

from ..history.ingest import Period
from ..history.run import LimitBy
from ..replay import Floats
from .jobs import UNKNOWN, PeriodJobs, tensor_core_gpus
from .live import Live
from .report_data import (
    Dimension,
    GpuHours,
    LimitUse,
    Loss,
    PredictionQuality,
    Share,
    TensorCoreUse,
    Use,
    WaitBySize,
    WaitCause,
)

SLOT_S = (3600.0, 6 * 3600.0, 86400.0, 7 * 86400.0)
MOST_SLOTS = 200
# Size classes of jobs by their largest number of GPUs, and what larger ones are called.
SIZES = {1: "1", 4: "2-4", 8: "5-8", 16: "9-16", 32: "17-32", 64: "33-64", 128: "65-128"}
LARGER = "129+"
# Outcomes of jobs that were not done when they ended.
UNDONE = ("failed", "timed_out", "cancelled", "preempted", "unknown")
MOST_LOSSES = 500
# A cause counts for a job from this share of its wait on.
LEAST_SHARE = 0.01
LEVEL = 0.95


def use(jobs: PeriodJobs, gpus: int | None) -> tuple[Use, ...]:
    """GPU-hours and waiting GPUs by slot of time; at most MOST_SLOTS slots of a usual length."""
    edges = _edges(jobs.period)
    ran = _spread(jobs.table, "begin_s", "finish_s", "outcome", edges)
    waited = _spread(_waiting(jobs), "from_s", "to_s", "waits", edges).get("waits", edges[1:] * 0)
    length_h = np.diff(edges) / 3600
    return tuple(
        Use(
            start_s=float(edges[i]),
            hours=GpuHours(**{name: float(hours[i]) for name, hours in ran.items()}),
            capacity=None if gpus is None else float(gpus * length_h[i]),
            waiting_gpus=float(waited[i] / length_h[i]),
        )
        for i in range(len(length_h))
    )


def idle_while_waiting(jobs: PeriodJobs, gpus: Mapping[str, int]) -> dict[str, float]:
    """GPU-hours of each type that were free in slots in which jobs waited for that type.

    In each slot at most as many GPUs as were free, and at most as many as were waited for.
    """
    edges = _edges(jobs.period)
    length_h = np.diff(edges) / 3600
    held = _spread(jobs.table, "begin_s", "finish_s", "gpu_type", edges)
    waited = _spread(_waiting(jobs), "from_s", "to_s", "gpu_type", edges)
    none = np.zeros(len(length_h))
    return {
        name: float(
            np.minimum(
                (count * length_h - held.get(name, none)).clip(0), waited.get(name, none)
            ).sum()
        )
        for name, count in gpus.items()
    }


def _edges(period: Period) -> Floats:
    """Where slots begin, and the end of the last (n + 1,)."""
    length_s = period.until_s - period.since_s
    slot_s = next((s for s in SLOT_S if length_s / s <= MOST_SLOTS), SLOT_S[-1])
    starts: Floats = np.arange(period.since_s, period.until_s, slot_s)
    return np.append(starts, period.until_s)


def _waiting(jobs: PeriodJobs) -> pl.DataFrame:
    """The jobs that waited in the period, from when to when."""
    since_s, until_s = jobs.period.since_s, jobs.period.until_s
    return jobs.table.select(
        "gpu_type",
        "gpus",
        waits=pl.lit("waits"),
        from_s=pl.max_horizontal("submit_s", pl.lit(since_s)),
        to_s=pl.min_horizontal("start_s", pl.lit(until_s)),
    ).filter(pl.col("to_s") > pl.col("from_s"))


def _spread(table: pl.DataFrame, begin: str, end: str, by: str, edges: Floats) -> dict[str, Floats]:
    """GPU-hours in each slot (n,) of spans from ``begin`` to ``end``, by the values of a column.

    A span adds its GPUs from its begin on and takes them away from its end on. Of each change the
    first slot has a part, later ones the whole, as a running sum; every span ends by the last edge.
    """
    slots, slot_s = len(edges) - 1, float(edges[1] - edges[0])
    gpus = pl.col("gpus").cast(pl.Float64)
    changes = pl.concat(
        [table.select(by, at=begin, gpus=gpus), table.select(by, at=end, gpus=-gpus)]
    )
    slot = ((pl.col("at") - edges[0]) / slot_s).floor().cast(pl.Int64).clip(0, slots - 1)
    rest_s = edges[0] + (slot + 1) * slot_s - pl.col("at")
    sums = changes.group_by(by, slot=slot).agg(
        level=pl.col("gpus").sum(), part=(pl.col("gpus") * rest_s).sum()
    )
    found = {}
    for (name,), rows in sums.group_by(by):
        level, part = np.zeros(slots), np.zeros(slots)
        place = rows["slot"].to_numpy()
        level[place], part[place] = rows["level"].to_numpy(), rows["part"].to_numpy()
        before = np.concatenate(([0.0], np.cumsum(level)[:-1]))
        found[str(name)] = ((before * slot_s + part) / 3600).clip(min=0.0)
    return found


def hours_of(table: pl.DataFrame) -> GpuHours:
    """GPU-hours inside the period by outcome."""
    sums = dict(table.group_by("outcome").agg(pl.col("hours").sum()).iter_rows())
    return GpuHours(**{name: float(hours) for name, hours in sums.items()})


def splits(jobs: PeriodJobs, gpus: Mapping[str, int]) -> Mapping[Dimension, tuple[Share, ...]]:
    """GPU-hours by every dimension, the largest first; ``gpus`` of the types that are known."""
    cells = jobs.table.group_by(*Dimension, "outcome").agg(
        pl.len(), pl.col("hours").sum(), _unused_gpu_hours().alias("unused")
    )
    found = {dimension: _shares(cells, dimension) for dimension in Dimension}
    # GPU types with the hours that nobody had, also those on which no job ran.
    types, wanted = found[Dimension.GPU_TYPE], idle_while_waiting(jobs, gpus)
    silent = sorted(gpus.keys() - {share.key for share in types})
    types += tuple(Share(key=name, jobs=0, hours=GpuHours()) for name in silent)
    with_idle = (
        replace(
            share,
            idle_wanted_gpu_hours=wanted[share.key],
            idle_gpu_hours=max(0.0, gpus[share.key] * jobs.period.hours - share.hours.allocated),
        )
        if share.key in gpus
        else share
        for share in types
    )
    return found | {Dimension.GPU_TYPE: tuple(with_idle)}


def losses(jobs: PeriodJobs) -> tuple[Loss, ...]:
    """Jobs that ended without being done by user, account and state, the most GPU-hours first."""
    ended = jobs.table.lazy().filter(pl.col("outcome").is_in(UNDONE))
    largest = pl.col("hours").arg_max()
    rows = (
        ended.group_by("user", "account", "state")
        .agg(
            pl.len().alias("jobs"),
            pl.col("hours").sum().alias("gpu_hours"),
            pl.col("wall_s").median().alias("median_run_s"),
            pl.col("job_id").get(largest).alias("example"),
            pl.col("gpus").get(largest),
            pl.col("scheduler").first().fill_null(""),
        )
        .sort("gpu_hours", "user", "account", "state", descending=[True, False, False, False])
        .head(MOST_LOSSES)
        .collect()
    )
    return tuple(Loss(**row) for row in rows.iter_rows(named=True))


def wait_causes(jobs: PeriodJobs, gpus: Mapping[str, int]) -> tuple[WaitCause, ...]:
    """What jobs that started in the period waited for, told from how many GPUs were free.

    A job counts under every cause of some of its wait. ``gpus`` are those of types that are known.
    """
    waited = _waiting(jobs)
    counts: Counter[str] = Counter()
    asked_s: defaultdict[str, float] = defaultdict(float)
    for (name,), rows in waited.group_by("gpu_type"):
        count, asked = gpus.get(str(name)), rows["gpus"].to_numpy()
        wait_s = (rows["to_s"] - rows["from_s"]).to_numpy()
        parts = {"unknown": wait_s}
        if count is not None:
            taken_s = _taken_s(jobs.table.filter(pl.col("gpu_type") == name), rows, count)
            parts = {"taken": taken_s, "free": wait_s - taken_s}
        for cause, part_s in parts.items():
            counts[cause] += int((part_s > LEAST_SHARE * wait_s).sum())
            asked_s[cause] += (asked * part_s).sum()
    causes = [
        WaitCause(cause=cause, jobs=count, gpu_hours=float(asked_s[cause]) / 3600)
        for cause, count in counts.items()
        if count
    ]
    return tuple(sorted(causes, key=lambda cause: -cause.gpu_hours))


def _taken_s(held: pl.DataFrame, rows: pl.DataFrame, count: int) -> Floats:
    """Seconds of each wait in which fewer GPUs of the type were free than the job asked for."""
    begins, ends = held["begin_s"].to_numpy(), held["finish_s"].to_numpy()
    gpus = held["gpus"].to_numpy().astype(np.int64)
    if not held.height:
        return np.zeros(rows.height)
    at = np.concatenate([begins, ends])
    order = np.argsort(at, kind="stable")
    at, free = at[order], count - np.cumsum(np.concatenate([gpus, -gpus])[order])
    found = np.zeros(rows.height)
    asked = rows["gpus"].to_numpy()
    from_s, to_s = rows["from_s"].to_numpy(), rows["to_s"].to_numpy()
    lengths = np.diff(at, append=at[-1])
    for size in np.unique(asked):
        sums = np.concatenate([[0.0], np.cumsum(lengths * (free < size))[:-1]])
        mine = asked == size
        found[mine] = np.interp(to_s[mine], at, sums) - np.interp(from_s[mine], at, sums)
    return found


def waiting_now(live: Live | None) -> tuple[WaitCause, ...]:
    """What jobs of a queue wait for, as its scheduler says."""
    counts: Counter[str] = Counter()
    hours: defaultdict[str, float] = defaultdict(float)
    for job in () if live is None else live.jobs:
        if live is not None and job.start_s is None and job.request.gpus:
            cause = "held" if job.held else job.waits.text or "GPUs"
            counts[cause] += 1
            hours[cause] += job.request.gpus * max(0.0, live.at_s - job.submit_s) / 3600
    causes = [
        WaitCause(cause=cause, jobs=count, gpu_hours=hours[cause], now=True)
        for cause, count in counts.items()
    ]
    return tuple(sorted(causes, key=lambda cause: -cause.gpu_hours)[:MOST_LOSSES])


def waits(jobs: PeriodJobs) -> tuple[WaitBySize, ...]:
    """Waiting time of the jobs that started in the period, by size."""
    wait = pl.col("start_s") - pl.col("submit_s")
    sizes = [*SIZES.values(), LARGER]
    rows = (
        jobs.table.lazy()
        .filter(pl.col("start_s") >= jobs.period.since_s)
        .group_by(size=pl.lit(pl.Series(list(SIZES))).search_sorted(pl.col("gpus")))
        .agg(
            pl.len().alias("jobs"),
            wait.median().alias("median_s"),
            wait.quantile(0.95).alias("p95_s"),
            wait.max().alias("longest_s"),
        )
        .sort("size")
        .collect()
    )
    return tuple(WaitBySize(**row | {"size": sizes[row["size"]]}) for row in rows.to_dicts())


def limits(jobs: PeriodJobs) -> tuple[LimitUse, ...]:
    """How jobs that ended in the period used their limits, by who set these."""
    ended = jobs.table.lazy().filter(pl.col("outcome") != "running")
    limited = pl.col("limit_s").is_not_null()
    killed = pl.col("outcome") == "timed_out"
    asked_s, wall_s = pl.col("limit_s").sum(), pl.col("wall_s").filter(limited).sum()
    rows = ended.group_by(by="limit_by").agg(
        pl.len().alias("jobs"),
        (asked_s / 3600).alias("requested_hours"),
        pl.when(asked_s > 0).then(wall_s / asked_s).alias("accuracy"),
        killed.sum().alias("killed"),
        pl.col("hours").filter(killed).sum().alias("killed_gpu_hours"),
        _unused_gpu_hours().alias("unused_gpu_hours"),
    )
    return tuple(
        LimitUse(**row | {"by": row["by"] and LimitBy(row["by"])})
        for row in rows.sort("by").collect().to_dicts()
    )


def predictions(jobs: PeriodJobs) -> tuple[PredictionQuality, ...]:
    """How right predictions were of jobs completed in the period, by model.

    Of the time of a step where the job reported it, else of the whole run, start-up included.
    """
    step = pl.col("reported_step_s") / pl.col("predicted_step_s")
    ratio = pl.coalesce(step, pl.col("wall_s") / pl.col("predicted_median_s"))
    upper = pl.col("predicted_upper_s") / pl.col("predicted_median_s")
    known = (
        jobs.table.lazy()
        .filter(pl.col("outcome") == "completed")
        .with_columns(error=(1 / ratio - 1).abs(), inside=ratio <= upper)
    )
    rows = (
        known.filter(pl.col("error").is_finite())
        .group_by("model")
        .agg(
            pl.len().alias("jobs"),
            pl.col("error").mean().alias("mean_error"),
            pl.col("error").median().alias("median_error"),
            pl.col("inside").mean().alias("coverage"),
            pl.col("predicted_level").max().fill_null(LEVEL).alias("level"),
        )
        .rename({"model": "key"})
        .sort("jobs", "key", descending=[True, False])
        .collect()
    )
    return tuple(PredictionQuality(**row) for row in rows.to_dicts())


def tensor_cores(jobs: PeriodJobs) -> tuple[TensorCoreUse, ...]:
    """What GPUs with tensor cores computed in, by GPU type."""
    cells = jobs.table.group_by("gpu_type", "precision").agg(pl.col("hours").sum())
    on = cells.filter(pl.col("gpu_type").is_in(tensor_core_gpus()))
    full, unknown = pl.col("precision") == "fp32", pl.col("precision") == UNKNOWN
    rows = on.group_by("gpu_type").agg(
        pl.col("hours").filter(full).sum().alias("fp32_hours"),
        pl.col("hours").filter(~full & ~unknown).sum().alias("low_precision_hours"),
        pl.col("hours").filter(unknown).sum().alias("unknown_hours"),
    )
    return tuple(TensorCoreUse(**row) for row in rows.sort("gpu_type").to_dicts())


def _unused_gpu_hours() -> pl.Expr:
    """GPU-hours reserved for jobs that completed and did not need them."""
    left = (pl.col("limit_s") - pl.col("wall_s")).clip(lower_bound=0) * pl.col("gpus") / 3600
    known = pl.col("limit_s").is_not_null() & (pl.col("outcome") == "completed")
    return left.filter(known).sum()


def _shares(cells: pl.DataFrame, dimension: Dimension) -> tuple[Share, ...]:
    sums = cells.group_by(dimension.value, "outcome").agg(pl.col("len", "hours", "unused").sum())
    found = []
    for (key,), rows in sums.group_by(dimension.value):
        hours = GpuHours(**dict(rows.select("outcome", "hours").iter_rows()))
        count, unused = int(rows["len"].to_numpy().sum()), float(rows["unused"].sum())
        found.append(Share(key=str(key), jobs=count, hours=hours, unused_gpu_hours=unused))
    return tuple(sorted(found, key=lambda s: (-s.hours.allocated, s.key)))
