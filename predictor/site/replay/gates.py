"""What jobs wait for besides their submission and room: other jobs, and places among their like."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """``job`` may start ``delay_s`` after ``other`` has ended, or ``started``; rows of a trace."""

    job: int
    other: int
    started: bool = False
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """Rows of a trace of which ``at_most`` run at once, as tasks of an array."""

    jobs: tuple[int, ...]
    at_most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """The conditions of a trace; of those in ``any_of`` one is enough, of others all have to hold.

    Jobs that wait for each other never start.
    """

    after: tuple[After, ...] = ()
    any_of: frozenset[int] = frozenset()
    throttles: tuple[Throttle, ...] = ()


NO_GATES = Gates()


class Arrivals:
    """Jobs, by their rank, that come to wait for room as time goes on."""

    def __init__(self, submit_s: Sequence[float], gates: Gates, rank_of: Sequence[int]) -> None:
        self._soonest = list(submit_s)
        self._unmet = [0] * len(submit_s)
        self._on: dict[bool, defaultdict[int, list[tuple[int, float]]]] = {
            started: defaultdict(list) for started in (False, True)
        }
        for one in gates.after:
            job = rank_of[one.job]
            self._on[one.started][rank_of[one.other]].append((job, one.delay_s))
            self._unmet[job] = 1 if one.job in gates.any_of else self._unmet[job] + 1
        self._lines = {
            rank_of[job]: line
            for one in gates.throttles
            for line in [_Line(one.at_most)]
            for job in one.jobs
        }
        self._coming = [(s, job) for job, s in enumerate(submit_s) if not self._unmet[job]]
        heapq.heapify(self._coming)

    @property
    def next_s(self) -> float:
        """When the next job comes, infinite where none is known to."""
        return self._coming[0][0] if self._coming else float("inf")

    def until(self, now_s: float) -> Iterator[int]:
        """The jobs that have come by now."""
        while self._coming and self._coming[0][0] <= now_s:
            job = heapq.heappop(self._coming)[1]
            line = self._lines.get(job)
            if line is None or line.enters(job):
                yield job

    def started(self, job: int, now_s: float) -> None:
        """Let those come that waited for this start."""
        self._met(job, now_s, started=True)

    def ended(self, job: int, now_s: float) -> None:
        """Let those come that waited for this end, and the next of its like."""
        self._met(job, now_s, started=False)
        line = self._lines.get(job)
        if line is not None and (following := line.leaves()) is not None:
            heapq.heappush(self._coming, (now_s, following))

    def _met(self, other: int, now_s: float, *, started: bool) -> None:
        for job, delay_s in self._on[started].get(other, ()):
            self._unmet[job] -= 1
            self._soonest[job] = max(self._soonest[job], now_s + delay_s)
            if self._unmet[job] == 0:
                heapq.heappush(self._coming, (self._soonest[job], job))


class _Line:
    """Places for jobs at once, and who waits for one, the first in rank before others."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._waiting: list[int] = []

    def enters(self, job: int) -> bool:
        """Whether there was a place; else the job waits in line."""
        if self._places:
            self._places -= 1
            return True
        heapq.heappush(self._waiting, job)
        return False

    def leaves(self) -> int | None:
        """The job that is next after one has ended."""
        self._places += 1
        return heapq.heappop(self._waiting) if self._waiting else None
