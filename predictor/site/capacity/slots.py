"""Where GPU-hours went over time: sums by slots of a period."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from ..replay import Floats
from .jobs import PeriodJobs
from .report_data import GpuHours, ReportPeriod, Use

OUTCOMES = ("completed", "failed", "timed_out", "cancelled", "preempted", "running")
SLOT_S = (3600.0, 6 * 3600.0, 86400.0, 7 * 86400.0)
MOST_SLOTS = 200


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


def _edges(period: ReportPeriod) -> Floats:
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
