"""Where GPU-hours went: sums over the jobs of a period."""

from __future__ import annotations

import math
from collections.abc import Mapping

import polars as pl

from ..history.run import LimitBy
from .jobs import UNKNOWN, Jobs, tensor_core_gpus
from .report_data import (
    Dimension,
    GpuHours,
    LimitUse,
    PredictionQuality,
    Share,
    TensorCoreUse,
    Use,
    Wait,
)

OUTCOMES = ("completed", "failed", "timed_out", "cancelled", "preempted", "running")
SLOT_S = (3600.0, 6 * 3600.0, 86400.0, 7 * 86400.0)
MOST_SLOTS = 200
# The largest number of GPUs of each size class.
SIZES = (1, 4, 8, 16, 32, 64, 128)
FULL_PRECISION = ("fp32",)
LEVEL = 0.95


def hours_of(table: pl.DataFrame) -> GpuHours:
    """GPU-hours inside the period by outcome."""
    sums = dict(table.group_by("outcome").agg(pl.col("hours").sum()).iter_rows())
    return GpuHours(**{name: float(sums.get(name, 0.0)) for name in OUTCOMES})


def splits(jobs: Jobs) -> Mapping[Dimension, tuple[Share, ...]]:
    """GPU-hours by every dimension, the largest first."""
    return {dimension: _shares(jobs.table, dimension) for dimension in Dimension}


def use(jobs: Jobs, gpus: int | None) -> tuple[Use, ...]:
    """GPU-hours and waiting GPUs by slot of time; at most MOST_SLOTS slots."""
    since, until = jobs.period.since_s, jobs.period.until_s
    slot = next((s for s in SLOT_S if (until - since) / s <= MOST_SLOTS), SLOT_S[-1])
    starts = [since + slot * i for i in range(math.ceil((until - since) / slot))]
    if not starts:
        return ()
    ran = _spread(jobs.table, "begin_s", "finish_s", since, slot, len(starts))
    waited = _spread(
        jobs.table.with_columns(
            pl.max_horizontal("submit_s", pl.lit(since)).alias("from_s"),
            pl.min_horizontal("start_s", pl.lit(until)).alias("to_s"),
            outcome=pl.lit("waiting"),
        ).filter(pl.col("to_s") > pl.col("from_s")),
        "from_s", "to_s", since, slot, len(starts),
    )  # fmt: skip
    found = []
    for i, start_s in enumerate(starts):
        length_h = (min(start_s + slot, until) - start_s) / 3600
        hours = GpuHours(**{name: ran.get((i, name), 0.0) for name in OUTCOMES})
        capacity = None if gpus is None else gpus * length_h
        found.append(
            Use(start_s=start_s, hours=hours, capacity=capacity,
                waiting_gpus=waited.get((i, "waiting"), 0.0) / length_h)
        )  # fmt: skip
    return tuple(found)


def waits(jobs: Jobs) -> tuple[Wait, ...]:
    """Waiting time of the jobs that started in the period, by size."""
    started = jobs.table.filter(pl.col("start_s") >= jobs.period.since_s)
    wait = pl.col("start_s") - pl.col("submit_s")
    found = []
    for low, high in zip((0, *SIZES), (*SIZES, None), strict=True):
        bound = pl.lit(True) if high is None else pl.col("gpus") <= high
        part = started.filter((pl.col("gpus") > low) & bound)
        if part.height:
            median, p95, longest = part.select(
                wait.median().alias("median"), wait.quantile(0.95).alias("p95"),
                wait.max().alias("longest"),
            ).row(0)  # fmt: skip
            found.append(
                Wait(size=_size(low + 1, high), jobs=part.height, median_s=median, p95_s=p95,
                     longest_s=longest)
            )  # fmt: skip
    return tuple(found)


def limits(jobs: Jobs) -> tuple[LimitUse, ...]:
    """How jobs that ended in the period used their limits, by who set these."""
    ended = jobs.table.filter(pl.col("outcome") != "running")
    limited = pl.col("limit_s").is_not_null()
    killed = pl.col("outcome") == "timed_out"
    left = (pl.col("limit_s") - pl.col("wall_s")).clip(lower_bound=0) * pl.col("gpus") / 3600
    unused = left.filter(limited & (pl.col("outcome") == "completed")).sum()
    rows = ended.group_by("limit_by").agg(
        pl.len(),
        pl.col("wall_s").filter(limited).sum().alias("wall_s"),
        pl.col("limit_s").sum().alias("asked_s"),
        killed.sum().alias("killed"),
        pl.col("hours").filter(killed).sum().alias("killed_hours"),
        unused.alias("unused"),
    )
    return tuple(
        LimitUse(
            by=None if by is None else LimitBy(by), jobs=n, killed=lost, killed_gpu_hours=hours,
            accuracy=wall / asked if asked else None, unused_gpu_hours=free,
        )
        for by, n, wall, asked, lost, hours, free in rows.sort("limit_by").iter_rows()
    )  # fmt: skip


def predictions(jobs: Jobs) -> tuple[PredictionQuality, ...]:
    """How right predictions were of jobs completed in the period, by model.

    Of the time of a step where the job reported it, else of the whole run, start-up included.
    """
    step = pl.col("reported_step_s") / pl.col("predicted_step_s")
    ratio = pl.coalesce(step, pl.col("wall_s") / pl.col("predicted_median_s"))
    upper = pl.col("predicted_upper_s") / pl.col("predicted_median_s")
    known = jobs.table.filter(pl.col("outcome") == "completed").with_columns(
        error=(1 / ratio - 1).abs(), inside=ratio <= upper
    )
    rows = (
        known.filter(pl.col("error").is_finite())
        .group_by("model")
        .agg(
            pl.len(),
            pl.col("error").mean().alias("mean"),
            pl.col("error").median().alias("median"),
            pl.col("inside").mean().alias("coverage"),
            pl.col("predicted_level").max().alias("level"),
        )
        .sort("len", "model", descending=[True, False])
    )  # fmt: skip
    return tuple(
        PredictionQuality(
            key=model, jobs=n, mean_error=mean, median_error=median, coverage=coverage,
            level=LEVEL if level is None else level,
        )
        for model, n, mean, median, coverage, level in rows.iter_rows()
    )  # fmt: skip


def tensor_cores(jobs: Jobs) -> tuple[TensorCoreUse, ...]:
    """What GPUs with tensor cores computed in, by GPU type."""
    on = jobs.table.filter(pl.col("gpu_type").is_in(tensor_core_gpus()))
    full, unknown = pl.col("precision").is_in(FULL_PRECISION), pl.col("precision") == UNKNOWN
    rows = on.group_by("gpu_type").agg(
        pl.col("hours").filter(full).sum().alias("full"),
        pl.col("hours").filter(~full & ~unknown).sum().alias("low"),
        pl.col("hours").filter(unknown).sum().alias("unknown"),
    )
    return tuple(
        TensorCoreUse(gpu_type=gpu, fp32_hours=a, low_precision_hours=b, unknown_hours=c)
        for gpu, a, b, c in rows.sort("gpu_type").iter_rows()
    )


def _shares(table: pl.DataFrame, dimension: Dimension) -> tuple[Share, ...]:
    counts = table.group_by(dimension.value).agg(pl.len())
    by_outcome = table.group_by(dimension.value, "outcome").agg(pl.col("hours").sum())
    hours: dict[str, dict[str, float]] = {}
    for key, outcome, amount in by_outcome.iter_rows():
        hours.setdefault(key, {})[outcome] = amount
    found = [Share(key=key, jobs=n, hours=GpuHours(**hours[key])) for key, n in counts.iter_rows()]
    return tuple(sorted(found, key=lambda s: (-s.hours.allocated, s.key)))


def _spread(
    table: pl.DataFrame, begin: str, end: str, since_s: float, slot_s: float, slots: int
) -> dict[tuple[int, str], float]:
    """GPU-hours by slot and outcome of spans from ``begin`` to ``end``, exact at the edges.

    Each span adds what lies before it in its first slot and takes away what lies after it in its
    last; whole slots between come from a running sum.
    """
    first = ((pl.col(begin) - since_s) / slot_s).floor().cast(pl.Int64).clip(0, slots - 1)
    last = ((pl.col(end) - since_s) / slot_s).floor().cast(pl.Int64).clip(0, slots - 1)
    spans = table.select("outcome", "gpus", pl.col(begin), pl.col(end), first=first, last=last)
    gpus = pl.col("gpus").cast(pl.Float64)
    # Time of the span from ``begin`` to the end of its first slot, less that after its end.
    head = gpus * (since_s + (pl.col("first") + 1) * slot_s - pl.col(begin))
    tail = gpus * (since_s + (pl.col("last") + 1) * slot_s - pl.col(end))
    edges = pl.concat([
        spans.select("outcome", slot="first", amount=head, level=gpus),
        spans.select("outcome", slot="last", amount=-tail, level=-gpus),
    ])  # fmt: skip
    sums = edges.group_by("outcome", "slot").agg(pl.col("amount").sum(), pl.col("level").sum())
    amounts = {(slot, outcome): (a, n) for outcome, slot, a, n in sums.iter_rows()}
    found: dict[tuple[int, str], float] = {}
    for outcome in sums["outcome"].unique():
        level = 0.0
        for slot in range(slots):
            amount, change = amounts.get((slot, outcome), (0.0, 0.0))
            found[slot, outcome] = max(0.0, (level * slot_s + amount) / 3600)
            level += change
    return found


def _size(low: int, high: int | None) -> str:
    if high is None:
        return f"{low}+"
    return str(low) if low == high else f"{low}-{high}"
