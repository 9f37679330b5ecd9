"""Replays a trace on pools of GPUs: first come first served, EASY backfill, or as slurmctld.

EASY (Lifka, JSSPP 1995; Mu'alem and Feitelson, IEEE TPDS 12, 2001): the first waiting job that
cannot start gets a reservation at the earliest time that the limits of running jobs promise; a
later job may start before it if it ends by its own limit until then, or takes GPUs that are spare
then. Where jobs may run in several pools, each pool holds at most one reservation, of the first
waiting job that this pool serves earliest. Pools are tried in their order, as Slurm tries nodes by
weight. ``slurm.py`` says what slurmctld does differently.

A job is never preempted, and one that ends at its limit is not submitted again.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from enum import StrEnum
from math import floor
from operator import or_

import numpy as np
from numpy.typing import NDArray

from ...errors import TraceError
from .nodes import Away, Nodes, Reservation
from .slurm import STOCK_RULES, BackfillPlan, FairShare, SlurmRules
from .trace import NO_GATES, Floats, Gates, Pool, Schedule, Share, Trace

# Waiting jobs looked at behind the first that cannot start; Slurm's bf_max_job_test.
BACKFILL_DEPTH = 500
Rows = NDArray[np.intp]


class Policy(StrEnum):
    """Who may start before a job that waits."""

    FIFO = "fifo"
    EASY = "easy"
    SLURM = "slurm"


def replay(
    trace: Trace,
    pools: Sequence[Pool],
    *,
    policy: Policy = Policy.EASY,
    depth: int = BACKFILL_DEPTH,
    gates: Gates = NO_GATES,
    away: Sequence[Away] = (),
    slurm: SlurmRules = STOCK_RULES,
) -> Schedule:
    """Start every job of the trace on the pools that are the columns of its ``run_s``.

    ``depth`` is how many waiting jobs backfill looks at behind the first that cannot start,
    ``slurm`` what holds under that policy. ``gates`` are what jobs wait for besides, ``away``
    GPUs that are kept from them for a time. Raises TraceError where the pools are not those of the
    trace, or no pool can ever hold a job.
    """
    if trace.run_s.shape[1] != len(pools):
        raise TraceError(
            f"run_s has {trace.run_s.shape[1]} columns for {len(pools)} pools: expected one each"
        )
    may = ~np.isnan(trace.run_s) & (trace.gpus[:, None] <= np.array([p.gpus for p in pools]))
    if not may.any(axis=1).all():
        job = int(np.argmin(may.any(axis=1)))
        raise TraceError(f"gpus={trace.gpus[job]} of job {job}: no pool it may run in has as many")
    empty = np.full(len(trace), np.nan)
    schedule = Schedule(
        start_s=empty,
        end_s=empty.copy(),
        killed=np.zeros(len(trace), dtype=bool),
        pool=np.zeros(len(trace), dtype=np.int64),
        promised_s=empty.copy(),
        shares=[()] * len(trace),
    )
    # With gates a job may wait for one of any pool.
    parts = _apart(may) if gates == NO_GATES else [(np.arange(len(may)), list(range(len(pools))))]
    for rows, columns in parts:
        rules = slurm if policy is Policy.SLURM else STOCK_RULES
        part = _Replay(trace, pools, may, rows, columns, schedule, gates, away, rules)
        part.run(policy, depth)
    return schedule


def _apart(may: NDArray[np.bool_]) -> list[tuple[Rows, list[int]]]:
    """Jobs and pools that never compete with others: rows and columns of each such part."""
    label = np.arange(may.shape[1])
    for kind in np.unique(may, axis=0) if len(may) else ():
        met = np.unique(label[kind])
        label[np.isin(label, met)] = met[0]
    of_job = label[may.argmax(axis=1)] if len(may) else np.empty(0, dtype=np.intp)
    return [
        (np.flatnonzero(of_job == part), np.flatnonzero(label == part).tolist())
        for part in np.unique(of_job)
    ]


class _Arrivals:
    """Jobs, by their rank, that come to wait for room as time goes on."""

    def __init__(self, submit_s: Sequence[float], gates: Gates, rank_of: Sequence[int]) -> None:
        self._soonest = list(submit_s)
        self._unmet = [0] * len(submit_s)
        # Who waits for the start (True) or the end of a job, and how long after.
        self._on: defaultdict[tuple[int, bool], list[tuple[int, float]]] = defaultdict(list)
        for one in gates.after:
            job = rank_of[one.job]
            self._on[rank_of[one.other], one.started].append((job, one.delay_s))
            self._unmet[job] = 1 if one.job in gates.any_of else self._unmet[job] + 1
        self._places = [one.at_most for one in gates.throttles]
        # Who waits for a place among their like, the first in rank before others.
        self._lines: list[list[int]] = [[] for _ in gates.throttles]
        self._line_of = {
            rank_of[job]: line for line, one in enumerate(gates.throttles) for job in one.jobs
        }
        self._coming = [(s, job) for job, s in enumerate(submit_s) if not self._unmet[job]]
        heapq.heapify(self._coming)

    @property
    def next_s(self) -> float:
        """When the next job comes, infinite where none is known to."""
        return self._coming[0][0] if self._coming else float("inf")

    def until(self, now_s: float) -> Iterator[int]:
        """The jobs that have come by now."""
        while self.next_s <= now_s:
            job = heapq.heappop(self._coming)[1]
            line = self._line_of.get(job)
            if line is None:
                yield job
            elif self._places[line]:
                self._places[line] -= 1
                yield job
            else:
                heapq.heappush(self._lines[line], job)

    def started(self, job: int, now_s: float) -> None:
        """Let those come that waited for this start."""
        self._met(job, now_s, started=True)

    def ended(self, job: int, now_s: float) -> None:
        """Let those come that waited for this end, and the next of its like."""
        self._met(job, now_s, started=False)
        line = self._line_of.get(job)
        if line is not None:
            self._places[line] += 1
            if self._lines[line]:
                heapq.heappush(self._coming, (now_s, heapq.heappop(self._lines[line])))

    def _met(self, other: int, now_s: float, *, started: bool) -> None:
        for job, delay_s in self._on.get((other, started), ()):
            self._unmet[job] -= 1
            self._soonest[job] = max(self._soonest[job], now_s + delay_s)
            if self._unmet[job] == 0:
                heapq.heappush(self._coming, (self._soonest[job], job))


class _Replay:
    """One part of a trace; jobs go by their rank: priority first, then submission."""

    def __init__(
        self,
        trace: Trace,
        pools: Sequence[Pool],
        may: NDArray[np.bool_],
        rows: Rows,
        columns: list[int],
        schedule: Schedule,
        gates: Gates,
        away: Sequence[Away],
        rules: SlurmRules,
    ) -> None:
        none = np.zeros(len(trace), dtype=np.int64)
        order = none if trace.priority is None else trace.priority
        self.job = job = rows[np.lexsort((rows, trace.submit_s[rows], -order[rows]))]
        self.columns, self.schedule, self.rules = columns, schedule, rules
        self.submit_s, self.gpus = trace.submit_s[job], trace.gpus[job]
        self.limit_s = trace.limit_s[job]
        least_s = self.limit_s if trace.least_s is None else trace.least_s[job]
        self.least_s: Floats = np.fmin(least_s, self.limit_s)
        self.arrivals = _Arrivals(self.submit_s.tolist(), gates, np.argsort(job).tolist())
        self.runs: list[bool] = (none > 0 if trace.runs is None else trace.runs)[job].tolist()
        self.may = may[job][:, columns]
        # The same for one job at a time.
        self.gpus_of: list[int] = self.gpus.tolist()
        self.limit_of: list[float] = self.limit_s.tolist()
        self.pools_of: list[list[bool]] = self.may.tolist()
        self.run_of: list[list[float]] = trace.run_s[job][:, columns].tolist()
        self.nodes = [
            Nodes(pools[column], [one for one in away if one.pool == pools[column].name])
            for column in columns
        ]
        self.returns = sorted(s for nodes in self.nodes for s in nodes.returns(-np.inf))
        self.points: Floats = (
            -trace.submit_s if trace.priority is None else order.astype(np.float64)
        )[job]
        self.shares = FairShare(rules, (none if trace.user is None else trace.user)[job])
        self.waiting: list[int] = []
        # (end, rank, pool, end by limit) of the running jobs, the next to end first.
        self.ends: list[tuple[float, int, int, float]] = []

    def run(self, policy: Policy, depth: int) -> None:
        """Every event in turn: ends, then submissions, then one look at the queue."""
        now_s, pass_s, ends = -np.inf, np.inf, self.ends
        while (now_s := min(self._next_s(now_s), pass_s)) < np.inf:
            while ends and ends[0][0] <= now_s:
                _, rank, pool, limit_end_s = heapq.heappop(ends)
                self.nodes[pool].stop(rank, limit_end_s)
                self.arrivals.ended(rank, now_s)
                self.shares.holds(rank, -self.gpus_of[rank], now_s)
            for rank in self.arrivals.until(now_s):
                insort(self.waiting, rank)
            if policy is Policy.EASY:
                self._pass_by(now_s, depth)
                continue
            self._start_in_order(now_s)
            if now_s >= pass_s:
                pass_s = np.inf
                self._backfill(now_s, depth)
            elif policy is Policy.SLURM and self.waiting:
                every_s = self.rules.bf_interval_s
                pass_s = min(pass_s, (floor(now_s / every_s) + 1) * every_s)

    def _next_s(self, now_s: float) -> float:
        """When the next job comes or ends, or GPUs come back."""
        while self.returns and self.returns[0] <= now_s:
            del self.returns[0]
        end_s = self.ends[0][0] if self.ends else np.inf
        back_s = self.returns[0] if self.returns else np.inf
        return min(self.arrivals.next_s, end_s, back_s)

    def _start(
        self, rank: int, now_s: float, held: dict[int, Reservation], closed: Sequence[bool] = ()
    ) -> bool:
        """Start a job in the first pool with room for it that is not closed."""
        limit_end_s = now_s + self.limit_of[rank]
        for pool, nodes in enumerate(self.nodes):
            if not self.pools_of[rank][pool] or (closed and closed[pool]):
                continue
            share = nodes.room(
                self.gpus_of[rank], now_s, limit_end_s, held.get(pool), runs=self.runs[rank]
            )
            if share is not None:
                nodes.start(rank, share, limit_end_s, held.get(pool))
                self._record(rank, pool, share, now_s, limit_end_s)
                return True
        return False

    def _record(self, rank: int, pool: int, share: Share, now_s: float, limit_end_s: float) -> None:
        run_s, job, out = self.run_of[rank][pool], self.job[rank], self.schedule
        killed = run_s > self.limit_of[rank]
        end_s = limit_end_s if killed else now_s + run_s
        out.start_s[job], out.end_s[job], out.killed[job] = now_s, end_s, killed
        out.pool[job], out.shares[job] = self.columns[pool], share
        heapq.heappush(self.ends, (end_s, rank, pool, limit_end_s))
        self.arrivals.started(rank, now_s)
        self.shares.holds(rank, self.gpus_of[rank], now_s)

    def _pass_by(self, now_s: float, depth: int) -> None:
        """EASY: start the first in order, then whoever may go before one that waits."""
        started = 0
        while started < len(self.waiting) and self._start(self.waiting[started], now_s, {}):
            started += 1
        del self.waiting[:started]
        if len(self.waiting) < 2 or not any(max(nodes.free) for nodes in self.nodes):
            return
        window = np.array(self.waiting[: depth + 1])
        if not self._may_start(window, now_s, {}).any():
            return
        held: dict[int, Reservation] = {}
        while len(window):
            window = window[self._may_start(window, now_s, held, or_reserve=True)]
            for at, rank in enumerate(window.tolist()):
                if self._start(rank, now_s, held):
                    del self.waiting[bisect_left(self.waiting, rank)]
                elif not self._reserve(rank, now_s, held):
                    continue
                window = window[at + 1 :]
                break
            else:
                return

    def _may_start(
        self, window: Rows, now_s: float, held: dict[int, Reservation], *, or_reserve: bool = False
    ) -> NDArray[np.bool_]:
        """Jobs (n,) that may have room now; with ``or_reserve`` also those that may reserve."""
        found = np.zeros(len(window), dtype=bool)
        end_s = now_s + self.limit_s[window]
        for pool, nodes in enumerate(self.nodes):
            may = self.may[window, pool]
            if not or_reserve or pool in held:
                may = may & nodes.may_fit(self.gpus[window], end_s, held.get(pool))
            found |= may
        return found

    def _reserve(self, rank: int, now_s: float, held: dict[int, Reservation]) -> bool:
        """Hold room for a job that waits; False where other jobs hold all of its pools."""
        found = {
            pool: self.nodes[pool].reserve(self.gpus_of[rank], now_s, self.limit_of[rank])
            for pool, may in enumerate(self.pools_of[rank])
            if may and pool not in held
        }
        if not found:
            return False
        best = min(found, key=lambda pool: found[pool].shadow_s)
        held[best] = found[best]
        job, promised_s = self.job[rank], self.schedule.promised_s
        if rank == self.waiting[0] and np.isnan(promised_s[job]):
            promised_s[job] = found[best].shadow_s
        return True

    def _in_order(self, now_s: float) -> list[int]:
        """The waiting jobs by their priority now."""
        if self.rules.fixed_order:
            return list(self.waiting)
        ranks = np.array(self.waiting, dtype=np.int64)
        too_old_s = np.maximum(now_s - self.submit_s[ranks] - self.rules.max_age_s, 0.0)
        points = self.points[ranks] - too_old_s + self.shares.seconds(ranks, now_s)
        ordered: list[int] = ranks[np.argsort(-points, kind="stable")].tolist()
        return ordered

    def _start_in_order(self, now_s: float) -> None:
        """FIFO, and Slurm's main scheduler: in no pool one passes by the first without room."""
        closed = [False] * len(self.nodes)
        for rank in self._in_order(now_s):
            if all(closed):
                return
            if self._start(rank, now_s, {}, closed):
                self.waiting.remove(rank)
            else:
                closed = list(map(or_, closed, self.pools_of[rank]))

    def _backfill(self, now_s: float, depth: int) -> None:
        """Slurm: start whoever has room beside the plans of those before; plan the others."""
        ranks = self._in_order(now_s)[:depth]
        if not any(max(nodes.free) for nodes in self.nodes):
            return
        plans = [BackfillPlan(nodes, now_s, self.rules.bf_window_s) for nodes in self.nodes]
        may_start = self._may_start_now(plans, ranks)
        for at, rank in enumerate(ranks):
            if not may_start[at:].any():
                return  # nothing is left to plan for
            gpus, least_s = self.gpus_of[rank], float(self.least_s[rank])
            found = [
                (*room, pool)
                for pool, plan in enumerate(plans)
                if self.pools_of[rank][pool] and (room := plan.earliest(gpus, least_s)) is not None
            ]
            if not found:
                continue
            from_s, share, pool = min(found, key=lambda one: one[0])
            if from_s <= now_s:
                room_s = max(least_s, plans[pool].free_until_s(share) - now_s)
                self.limit_of[rank] = limit_s = min(self.limit_of[rank], room_s)
                self.nodes[pool].start(rank, share, now_s + limit_s, None)
                plans[pool].start(share, limit_s)
                self.waiting.remove(rank)
                self._record(rank, pool, share, now_s, now_s + limit_s)
            elif not plans[pool].keep(share, from_s, from_s + least_s):
                continue
            may_start[at:] = self._may_start_now(plans, ranks[at:])

    def _may_start_now(
        self, plans: Sequence[BackfillPlan], ranks: Sequence[int]
    ) -> NDArray[np.bool_]:
        """Jobs (n,) that may have room now beside the plans."""
        rows = np.array(ranks, dtype=np.intp)
        found = np.zeros(len(rows), dtype=bool)
        for pool, plan in enumerate(plans):
            found |= plan.may_start(self.gpus[rows], self.least_s[rows]) & self.may[rows, pool]
        return found
