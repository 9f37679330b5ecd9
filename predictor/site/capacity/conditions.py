"""What the jobs of a queue wait for besides GPUs, as conditions of its replay."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..replay import NO_GATES, After, Away, Floats, Gates, Throttle
from .live import NOTHING, Live, LiveJob, Waits
from .report_data import SetAside
from .waiting import Queue

Flags = NDArray[np.bool_]
TOO_LARGE = "it waits for more GPUs of its type than there are known to be"
HELD = "it is held until somebody releases it"
IN_RESERVATION = "it is to run in a reservation, whose jobs are not simulated"
BEHIND_ONE = "it waits for a job that is left out"
_RUNS_IN_RESERVATION = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Of the jobs (n,) of a queue: who is ``placed``, how soon, in seconds, and after whom.

    ``gates`` count the placed ones alone, ``away`` is in seconds from the moment of the queue.
    ``texts`` (n,) say what each waits for, ``set_aside`` who is left out and why.
    """

    placed: Flags
    soonest_s: Floats
    texts: tuple[str, ...]
    set_aside: tuple[SetAside, ...]
    gates: Gates = NO_GATES
    away: tuple[Away, ...] = ()
    notes: tuple[str, ...] = ()


def conditions(queue: Queue, fits: Flags, live: Live | None) -> Conditions:
    """Those of a queue whose jobs fit a pool or do not; of one that is not ``live``, room alone."""
    known = {} if live is None else {job.job_id: job for job in live.jobs}
    ids: list[str] = queue.table["job_id"].to_list()
    found = _Rows(queue, [known.get(job_id) for job_id in ids], fits)
    found.leave_out_those_behind()
    placed = np.array([reason is None for reason in found.left_out], dtype=bool)
    away, notes = ((), ()) if live is None else (_away(live, queue.at_s), live.notes)
    return Conditions(
        placed=placed,
        soonest_s=found.soonest_s(),
        set_aside=found.set_aside(),
        gates=found.gates(np.cumsum(placed) - 1),
        texts=tuple(waits.text for waits in found.waits),
        away=away,
        notes=notes,
    )


class _Rows:
    """The jobs of a queue by row; ``left_out`` says why one is, None for those that are placed."""

    def __init__(self, queue: Queue, jobs: list[LiveJob | None], fits: Flags) -> None:
        self.queue, self.jobs = queue, jobs
        self.ids: list[str] = queue.table["job_id"].to_list()
        self.row_of = {job_id: row for row, job_id in enumerate(self.ids)}
        self.waits = [NOTHING if job is None else job.waits for job in jobs]
        self.left_out = [_why(job, bool(ok)) for job, ok in zip(jobs, fits, strict=True)]

    def leave_out_those_behind(self) -> None:
        """Who waits for one that is left out, or for each other, never starts either."""
        open_rows = {row for row, why in enumerate(self.left_out) if why is None}
        starts: set[int] = set()
        while new := {row for row in open_rows - starts if self._can_start(row, starts)}:
            starts |= new
        for row in open_rows - starts:
            self.left_out[row] = BEHIND_ONE

    def _can_start(self, row: int, starts: set[int]) -> bool:
        waits = self.waits[row]
        met = [
            self._is_over(one.job_id) or self.row_of.get(one.job_id) in starts
            for one in waits.after
        ]
        return any(met) if waits.any_of and met else all(met)

    def _is_over(self, job_id: str) -> bool:
        """Whether a job is no reason to wait, or one for a known time."""
        row = self.row_of.get(job_id)
        if row is None:
            return job_id not in self.queue.held
        return self.left_out[row] == _RUNS_IN_RESERVATION

    def soonest_s(self) -> Floats:
        """Seconds (n,) from the moment of the queue before which a job does not start."""
        found = [self._soonest_s(waits) for waits in self.waits]
        return np.maximum(np.array(found, dtype=np.float64) - self.queue.at_s, 0.0)

    def _soonest_s(self, waits: Waits) -> float:
        """A job that runs in a reservation is not replayed: it counts as ending by its limit."""
        times = [waits.not_before_s or 0.0]
        for one in waits.after:
            row = self.row_of.get(one.job_id)
            job = None if row is None else self.jobs[row]
            if row is not None and job and self.left_out[row] == _RUNS_IN_RESERVATION:
                times.append((job.start_s or 0.0) + (job.limit_s or 0.0))
        return max(times)

    def gates(self, place: NDArray[np.intp]) -> Gates:
        """What placed jobs wait for, by their places among the placed."""
        after, any_of = [], set()
        for row, waits in enumerate(self.waits):
            gone = [self._is_over(one.job_id) for one in waits.after]
            if self.left_out[row] is not None or (waits.any_of and any(gone)):
                continue
            for one in waits.after:
                other = self.row_of.get(one.job_id)
                if other is not None and self.left_out[other] is None:
                    after.append(
                        After(
                            job=int(place[row]),
                            other=int(place[other]),
                            started=one.started,
                            delay_s=one.delay_s,
                        )
                    )
            if waits.any_of:
                any_of.add(int(place[row]))
        return Gates(after=tuple(after), any_of=frozenset(any_of), throttles=self._throttles(place))

    def _throttles(self, place: NDArray[np.intp]) -> tuple[Throttle, ...]:
        tasks: defaultdict[str, list[int]] = defaultdict(list)
        most: dict[str, int] = {}
        for row, job in enumerate(self.jobs):
            if job is not None and job.array and self.left_out[row] is None:
                tasks[job.array].append(row)
                if job.waits.at_most is not None:
                    most[job.array] = job.waits.at_most
        return tuple(
            Throttle(
                jobs=tuple(int(place[row]) for row in tasks[array]),
                at_most=max(count, sum(self._runs(row) for row in tasks[array]), 1),
            )
            for array, count in most.items()
        )

    def _runs(self, row: int) -> bool:
        job = self.jobs[row]
        return job is not None and job.start_s is not None

    def set_aside(self) -> tuple[SetAside, ...]:
        """Waiting jobs that are left out, by why."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        found[HELD] += self.queue.held
        for row in np.flatnonzero(self.queue.waits).tolist():
            found[self.left_out[row] or ""].append(self.ids[row])
        return tuple(
            SetAside(reason=why, jobs=len(ids), example=ids[0])
            for why, ids in found.items()
            if why and ids
        )


def _why(job: LiveJob | None, fits: bool) -> str | None:
    """Why a job is left out from the first; None where it is not."""
    if job is not None and job.start_s is None:
        if job.waits.never or job.waits.reservation:
            return job.waits.never or IN_RESERVATION
    elif job is not None and job.reserved:
        return _RUNS_IN_RESERVATION
    return None if fits else TOO_LARGE


def _away(live: Live, at_s: float) -> tuple[Away, ...]:
    return tuple(
        replace(one, from_s=one.from_s - at_s, until_s=one.until_s - at_s)
        for one in live.away
        if one.until_s > at_s
    )
