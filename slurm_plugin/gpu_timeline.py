"""When the GPUs of each node are free, as a list scheduler fills them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.intp]
Seconds = npt.NDArray[np.float64]

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Need:
    """GPUs of a job: ``per_node`` on each node it takes, wherever they are free where None."""

    gpus: int
    per_node: int | None

    @property
    def nodes(self) -> int:
        """Nodes it takes; 1 where any GPUs will do."""
        return 1 if self.per_node is None else -(-self.gpus // self.per_node)


class Timeline:
    """For each row (the GPUs of one type on one node) when each GPU is free, in seconds from now.

    Times only ever grow: a GPU that is held is free from the end of its last job on, and the gap
    before that job is lost.
    """

    def __init__(self, counts: Sequence[int]) -> None:
        width = max(counts, default=0)
        places = np.arange(width)[None, :]
        lacking = places >= np.asarray(counts, dtype=np.intp)[:, None]
        self._free: Seconds = np.where(lacking, NEVER, 0.0).reshape(len(counts), width)

    def copy(self) -> Timeline:
        """The same times, to be filled on its own."""
        other = Timeline(())
        other._free = self._free.copy()
        return other

    def occupy(self, row: int, gpus: int, until_s: float) -> int:
        """Hold the free GPUs of a row from now on; returns how many of ``gpus`` there were."""
        times = self._free[row]
        held = min(gpus, int(np.count_nonzero(times == 0.0)))
        if until_s > 0.0:
            times[:held] = until_s
            times.sort()
        return held

    def busy(self, row: int) -> tuple[int, float]:
        """How many GPUs of a row are held, and until when the last of them."""
        times = self._free[row]
        held = times[(times > 0.0) & (times < NEVER)]
        return len(held), float(held.max(initial=0.0))

    def earliest(self, rows: Rows, need: Need) -> float:
        """When a job can start on these rows, NEVER where they cannot hold it."""
        return self._choose(rows, need)[0]

    def place(self, rows: Rows, need: Need, run_s: float) -> float:
        """Start a job as early as it can be and hold its GPUs; returns its start, or NEVER."""
        start, chosen = self._choose(rows, need)
        if start == NEVER:
            return start
        if need.per_node is None:
            touched = np.unique(chosen // self._free.shape[1])
            self._free.ravel()[chosen] = start + run_s
        else:
            touched = chosen
            self._free[chosen, : need.per_node] = start + run_s
        ordered = self._free[touched]
        ordered.sort(axis=1)
        self._free[touched] = ordered
        return start

    def _choose(self, rows: Rows, need: Need) -> tuple[float, Rows]:
        """Start, and the rows to take, or where any GPUs will do the flat places of the GPUs."""
        if need.per_node is None:
            times, places = self._free[rows].ravel(), _places(rows, self._free.shape[1])
            return _first(times, places, need.gpus)
        if need.per_node > self._free.shape[1]:
            return NEVER, rows[:0]
        return _first(self._free[rows, need.per_node - 1], rows, need.nodes)


def _first(times: Seconds, labels: Rows, count: int) -> tuple[float, Rows]:
    """The ``count`` earliest labels and when the last of them is free."""
    if count > len(times):
        return NEVER, labels[:0]
    if count == 1:
        place = int(times.argmin())
        return float(times[place]), labels[place : place + 1]
    chosen = np.argpartition(times, count - 1)[:count]
    return float(times[chosen].max()), labels[chosen]


def _places(rows: Rows, width: int) -> Rows:
    return (rows[:, None] * width + np.arange(width)[None, :]).ravel()
