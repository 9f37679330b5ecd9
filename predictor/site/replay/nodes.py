"""The GPUs of one pool, node by node: who holds which, and when limits promise room."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .away import Absences, Away
from .trace import Ints, Pool

# (node, GPUs of it) of one job.
Share = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Reservation:
    """Room for a waiting job from ``shadow_s`` on.

    ``spare`` are the GPUs of each node that nobody needs then; jobs that will still run at that
    time take from it.
    """

    shadow_s: float
    spare: list[int]


class Nodes:
    """One pool while it is replayed; a pool without nodes is one large node."""

    def __init__(self, pool: Pool, away: Sequence[Away] = ()) -> None:
        self.gpus = pool.gpus
        self.size = pool.gpus_per_node or pool.gpus
        self.free = [self.size] * (pool.gpus // self.size)
        self.away = Absences(away, len(self.free), self.size)
        self._ends: list[tuple[float, int]] = []
        self._shares: dict[int, Share] = {}

    def room(
        self, gpus: int, now_s: float, end_s: float, held: Reservation | None, *, runs: bool = False
    ) -> Share | None:
        """Where a job could start now without touching what is held; None where it cannot.

        To one that ``runs`` already absences do not matter.
        """
        free = self._usable(held, end_s)
        if self.away and not runs:
            free = self.away.left(free, now_s, end_s, self._ends, self._shares)
        return place(free, self.size, gpus)

    def may_fit(
        self, gpus: Ints, end_s: NDArray[np.float64], held: Reservation | None
    ) -> NDArray[np.bool_]:
        """Jobs (n,) that ``room`` may find a place for; never False where it would."""
        whole, rest = np.divmod(gpus, self.size)
        fits: NDArray[np.bool_] = _bound(self.free, self.size, whole, rest)
        if held is None:
            return fits
        tight = _bound(self._usable(held, np.inf), self.size, whole, rest)
        return np.where(end_s > held.shadow_s, tight, fits)

    def start(self, job: int, share: Share, end_s: float, held: Reservation | None) -> None:
        """Take the GPUs of a job that may run until ``end_s``."""
        for node, count in share:
            self.free[node] -= count
            if held is not None and end_s > held.shadow_s:
                held.spare[node] -= count
        self._shares[job] = share
        insort(self._ends, (end_s, job))

    def stop(self, job: int, end_s: float) -> None:
        """Give back the GPUs of a job that might have run until ``end_s``."""
        for node, count in self._shares.pop(job):
            self.free[node] += count
        del self._ends[bisect_left(self._ends, (end_s, job))]

    def reserve(self, gpus: int, now_s: float, limit_s: float) -> Reservation:
        """The earliest time at which the limits of running jobs leave room."""
        if self.away:
            return self._reserve_beside_absences(gpus, now_s, limit_s)
        free, size = list(self.free), self.size
        whole, rest = divmod(gpus, size)
        wholes, widest = free.count(size), max(free)
        for at, (end_s, job) in enumerate(self._ends):
            for node, count in self._shares[job]:
                free[node] += count
                wholes += free[node] == size
                widest = max(widest, free[node])
            together = at + 1 < len(self._ends) and self._ends[at + 1][0] == end_s
            if together or wholes < whole or widest < rest:
                continue
            share = place(free, size, gpus)
            if share is not None:
                for node, count in share:
                    free[node] -= count
                return Reservation(end_s, free)
        raise AssertionError("a job that fits the empty pool has room after the last one")

    def _reserve_beside_absences(self, gpus: int, now_s: float, limit_s: float) -> Reservation:
        """The same where GPUs are away for a time."""
        free, ended = list(self.free), 0
        for at_s in sorted({*(end_s for end_s, _ in self._ends), *self.away.returns(now_s)}):
            while ended < len(self._ends) and self._ends[ended][0] <= at_s:
                for node, count in self._shares[self._ends[ended][1]]:
                    free[node] += count
                ended += 1
            left = self.away.left(free, at_s, at_s + limit_s, self._ends, self._shares)
            share = place(left, self.size, gpus)
            if share is not None:
                for node, count in share:
                    free[node] -= count
                return Reservation(at_s, free)
        raise AssertionError("a job that fits the empty pool has room after the last one")

    def _usable(self, held: Reservation | None, end_s: float) -> Sequence[int]:
        if held is None or end_s <= held.shadow_s:
            return self.free
        return list(map(min, self.free, held.spare))


def place(free: Sequence[int], size: int, gpus: int) -> Share | None:
    """Whole nodes first, the rest where it leaves the least free; None where there is no room."""
    whole, rest = divmod(gpus, size)
    if free.count(size) < whole or max(free) < rest:
        return None
    share, last = [], -1
    for _ in range(whole):
        last = free.index(size, last + 1)
        share.append((last, size))
    if rest:
        fits = [left for left in set(free) if left >= rest]
        if whole and free.count(size) == whole:
            fits = [left for left in fits if left < size]
        if not fits:
            return None
        best = min(fits)
        share.append((free.index(best, last + 1 if best == size else 0), rest))
    return tuple(share)


def _bound(free: Sequence[int], size: int, whole: Ints, rest: Ints) -> NDArray[np.bool_]:
    fits: NDArray[np.bool_] = (whole <= free.count(size)) & (rest <= max(free))
    return fits
