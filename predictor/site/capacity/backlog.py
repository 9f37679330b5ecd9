"""What the queue still needs, and when each waiting job starts and ends: replays of many draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..backtest.workload import UNLIMITED_S
from ..replay import Floats, Ints, Pool, Schedule, Trace, replay
from .conditions import Conditions, Flags, conditions
from .configurations import TAIL, Outlook
from .live import Live
from .report_data import Backlog, Range, SetAside, WaitingJob
from .waiting import DRAWS, Queue, Remaining, remaining

ANY = "any"
NO_PREDICTION = "no prediction: drawn from what past jobs used of their limits"
FIRST_QUANTILES = (TAIL, 0.5, 1 - TAIL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """The backlog by GPU type, every waiting job by its start, and jobs that are left out."""

    backlog: tuple[Backlog, ...] = ()
    queue: tuple[WaitingJob, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    notes: tuple[str, ...] = ()


def cleared(
    queue: Queue, pools: Sequence[Pool], outlook: Outlook, live: Live | None = None
) -> Cleared:
    """How the queue drains on these pools if nothing more is submitted; running jobs go on.

    ``live`` tells what jobs of a scheduler wait for besides GPUs. A pool is taken to be at least as
    large as what runs in it.
    """
    pools = _holding(queue, pools)
    may = _may(queue, pools)
    rules = conditions(queue, np.any(may, axis=1), live)
    ok, aside = rules.placed, rules.set_aside
    if not queue.waits[ok].any():
        return Cleared(set_aside=aside, notes=rules.notes)
    left = remaining(queue, outlook)
    schedules = [
        _replayed(queue, may, rules, left.seconds[:, draw], pools) for draw in range(DRAWS)
    ]
    start_s = np.array([one.start_s for one in schedules])
    end_s = np.array([one.end_s for one in schedules])
    rows = np.flatnonzero(ok)
    waits = np.flatnonzero(queue.waits[rows] > 0)
    jobs = [
        _queued(queue, left, int(rows[at]), start_s[:, at], end_s[:, at], rules.texts[rows[at]])
        for at in waits
    ]
    types = [queue.table["gpu_type"][int(rows[at])] or ANY for at in waits]
    backlog = tuple(
        _backlog(queue, left, rows, waits[[name == each for each in types]], end_s, name)
        for name in sorted(set(types))
    )
    return Cleared(
        backlog=backlog,
        queue=tuple(sorted(jobs, key=lambda job: job.starts_s.median)),
        set_aside=aside,
        notes=rules.notes,
    )


def _replayed(
    queue: Queue, may: Flags, rules: Conditions, seconds: Floats, pools: Sequence[Pool]
) -> Schedule:
    """One draw; running jobs come first, and times count from the moment of the queue."""
    table, ok = queue.table, rules.placed
    limit = table["limit_s"].fill_null(UNLIMITED_S).to_numpy()
    ran = (queue.at_s - table["start_s"].fill_null(queue.at_s)).to_numpy()
    limit = np.maximum(limit - ran, 1.0)
    run = np.where(may, seconds[:, None], np.nan)
    trace = Trace(
        submit_s=rules.soonest_s[ok],
        gpus=table["gpus"].to_numpy().astype(np.int64)[ok],
        limit_s=limit[ok],
        run_s=run[ok],
        priority=np.arange(int(ok.sum()), 0, -1),
        runs=queue.waits[ok] == 0,
    )
    return replay(trace, pools, gates=rules.gates, away=rules.away)


def _may(queue: Queue, pools: Sequence[Pool]) -> Flags:
    """Pools (n, pools) that each job may run in: that of its type; any where it names none."""
    names = np.array([pool.name for pool in pools])
    types = [name or "" for name in queue.table["gpu_type"].to_list()]
    asked = np.array(types, dtype=object)[:, None]
    fits = queue.table["gpus"].to_numpy()[:, None] <= np.array([pool.gpus for pool in pools])
    found: Flags = ((asked == names) | (asked == "")) & fits
    return found


def _holding(queue: Queue, pools: Sequence[Pool]) -> tuple[Pool, ...]:
    runs = queue.table.filter(queue.table["start_s"].is_not_null())
    held: Counter[str] = Counter()
    for name, gpus in runs.select("gpu_type", "gpus").iter_rows():
        held[name or ""] += gpus
    sizes = {pool.name: pool for pool in pools}
    for name, gpus in held.items():
        pool = sizes.get(name)
        if name and (pool is None or pool.gpus < gpus):
            sizes[name] = Pool(name=name, gpus=gpus)
    return tuple(sizes.values())


def _queued(
    queue: Queue, left: Remaining, row: int, start: Floats, end: Floats, waits_for: str
) -> WaitingJob:
    job = queue.table.row(row, named=True)
    found = left.predictions[row]
    return WaitingJob(
        job_id=job["job_id"],
        name=job["name"] or "",
        user=job["user"] or "",
        gpus=job["gpus"],
        gpu_type=job["gpu_type"] or ANY,
        starts_s=range_of(start),
        ends_s=range_of(end),
        waits_for=waits_for,
        evidence=NO_PREDICTION if found is None else "; ".join(found.evidence),
    )


def _backlog(
    queue: Queue, left: Remaining, rows: Ints, waits: Ints, end_s: Floats, name: str
) -> Backlog:
    mine = rows[waits]
    gpus = queue.table["gpus"].to_numpy()[mine]
    limits = queue.table["limit_s"].to_list()
    known = np.array([left.predictions[row] is not None for row in mine], dtype=bool)
    hours = (gpus[known, None] * left.seconds[mine[known]]).sum(axis=0) / 3600
    unknown = [
        gpu * (limits[row] or UNLIMITED_S) / 3600
        for gpu, row in zip(gpus[~known], mine[~known], strict=True)
    ]
    return Backlog(
        gpu_type=name,
        jobs=len(mine),
        gpu_hours=range_of(hours),
        unknown_jobs=int((~known).sum()),
        unknown_gpu_hours=float(sum(unknown)),
        drain_s=range_of(end_s[:, waits].max(axis=1)),
    )


def range_of(draws: Floats) -> Range:
    """Central 95 % of draws."""
    low, median, high = np.quantile(draws, FIRST_QUANTILES).tolist()
    return Range(low=low, median=median, high=high)
