"""Limits the daemon changes itself, a moment after slurmctld has made a user's change."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from queue import SimpleQueue
from typing import TYPE_CHECKING

from ..config import Slurm
from ..errors import SourceError
from ..sources.commands import Commands
from ..sources.words import minutes

if TYPE_CHECKING:
    from ..decide import LimitFollowUp

SETTLE_S = 0.3  # the hook runs before the change is made
TRIES, BETWEEN_TRIES_S = 3, 2.0
_log = logging.getLogger(__name__)


class Followed(StrEnum):
    """What became of one."""

    CHANGED = "changed"
    LEFT = "left"  # it no longer waits, or somebody else changed its limit
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class JobRecord:
    """State and limit of one record of a job; the limit in minutes, None for unlimited."""

    state: str
    limit_min: int | None


class FollowUps:
    """Carries out what a decider puts into ``queue``, in a thread of its own.

    A job is changed only while it is pending and has the limit the decision knew. ``told`` hears
    what became of each.
    """

    def __init__(
        self,
        queue: SimpleQueue[LimitFollowUp | None],
        slurm: Slurm,
        told: Callable[[Followed], None] = lambda _: None,
    ) -> None:
        self.queue = queue
        self.slurm = slurm
        self._told = told
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="follow-ups", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float = 5.0) -> None:
        """End the thread, after what is in the queue or the timeout."""
        self._stop.set()
        self.queue.put(None)
        self._thread.join(timeout_s)

    def _work(self) -> None:
        while (due := self.queue.get()) is not None:
            self._stop.wait(SETTLE_S)
            try:
                outcome = self._tried(due)
            except Exception:
                _log.exception("job %d: its limit was not changed", due.job_id)
                outcome = Followed.FAILED
            self._told(outcome)

    def _tried(self, due: LimitFollowUp) -> Followed:
        for attempt in range(1, TRIES + 1):
            try:
                return follow_up(due, self.slurm)
            except SourceError as error:
                _log.warning("job %d: try %d of %d: %s", due.job_id, attempt, TRIES, error)
            if attempt < TRIES and self._stop.wait(BETWEEN_TRIES_S):
                break
        return Followed.FAILED


def follow_up(due: LimitFollowUp, slurm: Slurm) -> Followed:
    """Change the limit of one job, where that is still right; raises SourceError."""
    records = job_records(slurm, due.job_id)
    expected = JobRecord("PENDING", due.old_limit_min)
    if not records or any(record != expected for record in records):
        _log.info("job %d is left as it is: %s, expected %s", due.job_id, records, expected)
        return Followed.LEFT
    target = f"jobid={due.job_id}"
    # One after the other: slurmctld would keep the comment of an update whose limit it refuses.
    scontrol(slurm, "update", target, f"timelimit={due.time_limit_min}")
    scontrol(slurm, "update", target, f"admincomment={due.admin_comment}")
    _log.info(
        "job %d: limit %d -> %d min, as its own change needs",
        due.job_id,
        due.old_limit_min,
        due.time_limit_min,
    )
    return Followed.CHANGED


def job_records(slurm: Slurm, job_id: int) -> tuple[JobRecord, ...]:
    """The records of a job, several for an array; raises SourceError where there is none.

    Only fields without a text of the user are asked for, so none can pass for another.
    """
    text = Commands.of(slurm).text(
        "squeue", "--noheader", f"--jobs={job_id}", "--states=all", "--format=%T %l"
    )
    pairs = (line.split() for line in text.splitlines() if line.strip())
    return tuple(JobRecord(state, minutes(limit)) for state, limit in pairs)


def scontrol(slurm: Slurm, *arguments: str) -> str:
    """What scontrol prints; raises SourceError with what it said."""
    return Commands.of(slurm).text("scontrol", *arguments)
