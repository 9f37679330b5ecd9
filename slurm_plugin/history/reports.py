"""The last step report of every running GPU job, kept until accounting tells its end."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TypeVar

from predictor.errors import StepReportError
from predictor.site.ended_job import EndedJob
from predictor.site.history.run import PrintedProgress, Reported, reported
from predictor.site.progress.reader import ProgressKind

from ..cluster import SlurmJob
from ..config import SlurmPolicy
from ..watch.reports import find_report, progress_of
from ..watch.revision import objection

MAX_KEPT = 100_000  # about 50 MB
Key = tuple[str, int]
Value = TypeVar("Value", Reported, PrintedProgress)


class Reports:
    """Reports by job, the oldest forgotten first where there are too many.

    A report is the user's claim: one that cannot be of this run of the job is not taken.
    """

    def __init__(self) -> None:
        self._kept: dict[Key, Reported] = {}
        self._printed: dict[Key, PrintedProgress] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def look(self, queue: Iterable[SlurmJob], policy: SlurmPolicy) -> None:
        """Read what the running jobs say, with no more rights than their users have."""
        training = (job for job in queue if job.state == "RUNNING" and job.gpus)
        for job in training:
            # accounting names a component of a het job by its number or by its own id
            keys = [_key(name, job.submit_s) for name in {job.label, str(job.job_id)}]
            if (found := _usable(job, policy)) is not None:
                for key in keys:
                    _keep(self._kept, key, found)
            elif (printed := _printed(job)) is not None:
                for key in keys:
                    _keep(self._printed, key, printed)

    def of(self, job: EndedJob) -> Reported | None:
        """What a job reported last, None where nothing usable is known."""
        return self._kept.get(_key(job.job_id, job.submit_s))

    def printed(self, job: EndedJob) -> PrintedProgress | None:
        """How far a job's output said it was when it was last seen running."""
        return self._printed.get(_key(job.job_id, job.submit_s))


def _keep(kept: dict[Key, Value], key: Key, value: Value) -> None:
    kept.pop(key, None)
    kept[key] = value
    while len(kept) > MAX_KEPT:
        del kept[next(iter(kept))]


def _printed(job: SlurmJob) -> PrintedProgress | None:
    reading = progress_of(job)
    if reading.kind is not ProgressKind.TRAINING or reading.unit is None:
        return None
    return PrintedProgress(
        unit=reading.unit,
        at=reading.at,
        total=reading.total,
        seconds_per_unit=reading.seconds_per_unit,
    )


def _usable(job: SlurmJob, policy: SlurmPolicy) -> Reported | None:
    try:
        report = find_report(job, policy.watch.rate_file)
    except StepReportError:
        return None
    if report is None or objection(job, report, policy, time.time()) is not None:
        return None
    return reported(report, job.start_s)


def _key(label: str, submit_s: float) -> Key:
    return label, int(submit_s)
