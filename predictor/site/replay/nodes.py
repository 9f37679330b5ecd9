"""The GPUs of one pool, node by node: who holds which, and when limits promise room."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import TraceError
from .trace import Ints, Pool, Share


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """So many GPUs of the pool of this name are away from ``from_s`` to ``until_s``.

    Whole nodes are meant where the pool has nodes. No job starts that might still run when they
    go; one that runs keeps its GPUs. Times have the origin of the trace. Raises TraceError.
    """

    pool: str
    gpus: int
    from_s: float
    until_s: float

    def __post_init__(self) -> None:
        if self.gpus < 1 or not self.from_s < self.until_s:
            raise TraceError(
                f"invalid {self.gpus} GPUs of {self.pool} away from {self.from_s:g} s to "
                f"{self.until_s:g} s; expected at least 1 GPU, and an end after the begin"
            )

    def meets(self, begin_s: float, end_s: float) -> bool:
        """Whether it is away at any time between."""
        return self.from_s < end_s and begin_s < self.until_s


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
        self.size = size = pool.gpus_per_node or pool.gpus
        self.free = [size] * (pool.gpus // size)
        self._ends: list[tuple[float, int]] = []
        self._shares: dict[int, Share] = {}
        # What is away, with the GPUs of each node that it takes: the last nodes first, and of other
        # nodes than what is away at the same time.
        self._lost: list[tuple[Away, list[int]]] = []
        for one in sorted(away, key=lambda each: each.from_s):
            others = [lost for other, lost in self._lost if other.meets(one.from_s, one.until_s)]
            taken, left = [0] * len(self.free), one.gpus
            by_load = [(sum(lost[at] for lost in others), -at, at) for at in range(len(taken))]
            for *_, node in sorted(by_load):
                taken[node] = min(size, left)
                left -= taken[node]
            self._lost.append((one, taken))

    def room(
        self, gpus: int, now_s: float, end_s: float, held: Reservation | None, *, runs: bool = False
    ) -> Share | None:
        """Where a job could start now without touching what is held; None where it cannot.

        To one that ``runs`` already absences do not matter.
        """
        free = self._usable(held, end_s)
        return place(free if runs else self._there(free, now_s, end_s), self.size, gpus)

    def windows(self, now_s: float) -> Iterator[tuple[Away, list[int]]]:
        """Absences that are not over, with the GPUs of each node that they take."""
        return ((one, lost) for one, lost in self._lost if one.until_s > now_s)

    def returns(self, now_s: float) -> set[float]:
        """When GPUs come back after now."""
        return {one.until_s for one, _ in self.windows(now_s)}

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
        """The earliest time at which limits of running jobs, and what comes back, leave room."""
        free, size = list(self.free), self.size
        whole, rest = divmod(gpus, size)
        wholes, widest, ended = free.count(size), max(free), 0
        given_back_s: Iterable[float] = dict.fromkeys(end_s for end_s, _ in self._ends)
        if self._lost:
            given_back_s = sorted({*given_back_s, *self.returns(now_s)})
        for at_s in given_back_s:
            while ended < len(self._ends) and self._ends[ended][0] <= at_s:
                for node, count in self._shares[self._ends[ended][1]]:
                    free[node] += count
                    wholes += free[node] == size
                    widest = max(widest, free[node])
                ended += 1
            if wholes < whole or widest < rest:
                continue
            share = place(self._there(free, at_s, at_s + limit_s), size, gpus)
            if share is not None:
                for node, count in share:
                    free[node] -= count
                return Reservation(at_s, free)
        raise AssertionError("a job that fits the empty pool has room after the last one")

    def timeline(self, now_s: float) -> tuple[NDArray[np.float64], Ints]:
        """Now and the ends of running jobs by limits (k,), and the GPUs free from then (k, n)."""
        times_s = np.unique([now_s, *(end_s for end_s, _ in self._ends if end_s > now_s)])
        free = np.tile(np.array(self.free, dtype=np.int64), (len(times_s), 1))
        for end_s, job in self._ends:
            row = int(np.searchsorted(times_s, end_s)) if end_s > now_s else 1
            for node, count in self._shares[job]:
                free[row:, node] += count
        return times_s, free

    def _there(self, free: Sequence[int], begin_s: float, end_s: float) -> Sequence[int]:
        """Of GPUs free at ``begin_s``, by node, those not away for a job up to ``end_s``."""
        meeting = [one for one, _ in self._lost if one.meets(begin_s, end_s)]
        for at_s in {max(begin_s, one.from_s) for one in meeting}:
            kept = [self.size] * len(free)
            for one, lost in self._lost:
                if one.from_s <= at_s < one.until_s:
                    kept = [left - gpus for left, gpus in zip(kept, lost, strict=True)]
            for _, job in self._ends[bisect_right(self._ends, at_s, key=lambda end: end[0]) :]:
                for node, count in self._shares[job]:
                    kept[node] -= count
            free = [max(0, min(pair)) for pair in zip(free, kept, strict=True)]
        return free

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
