"""GPUs of a pool that are kept from its jobs for a time: reservations, maintenance."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...errors import TraceError


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


class Absences:
    """The same node by node, the last nodes first; absences at the same time are of other nodes."""

    def __init__(self, away: Sequence[Away], nodes: int, size: int) -> None:
        self._size = size
        self._lost: list[tuple[Away, list[int]]] = []
        for one in sorted(away, key=lambda each: each.from_s):
            self._lost.append((one, self._lose(one, nodes)))

    def _lose(self, one: Away, nodes: int) -> list[int]:
        """GPUs of each node that it takes, of those that others at the same time leave first."""
        others = [lost for other, lost in self._lost if other.meets(one.from_s, one.until_s)]
        taken, left = [0] * nodes, one.gpus
        for node in sorted(range(nodes), key=lambda n: (sum(lost[n] for lost in others), -n)):
            taken[node] = min(self._size, left)
            left -= taken[node]
        return taken

    def __bool__(self) -> bool:
        return bool(self._lost)

    def left(
        self,
        free: Sequence[int],
        begin_s: float,
        end_s: float,
        ends: Sequence[tuple[float, int]],
        shares: Mapping[int, Sequence[tuple[int, int]]],
    ) -> Sequence[int]:
        """Of the GPUs of each node that are free at ``begin_s``, those for a job up to ``end_s``.

        ``ends`` are the running jobs by the end of their limit, ``shares`` what they hold.
        """
        meeting = [one for one, _ in self._lost if one.meets(begin_s, end_s)]
        for at_s in {max(begin_s, one.from_s) for one in meeting}:
            kept = [self._size] * len(free)
            for one, lost in self._lost:
                if one.from_s <= at_s < one.until_s:
                    kept = [left - gpus for left, gpus in zip(kept, lost, strict=True)]
            for _, job in ends[bisect_right(ends, at_s, key=lambda end: end[0]) :]:
                for node, count in shares[job]:
                    kept[node] -= count
            free = [max(0, min(pair)) for pair in zip(free, kept, strict=True)]
        return free

    def returns(self, now_s: float) -> list[float]:
        """When GPUs come back after now, in order."""
        return sorted({one.until_s for one, _ in self._lost if one.until_s > now_s})
