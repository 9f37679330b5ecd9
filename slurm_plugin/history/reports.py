"""The last step report of every running GPU job, kept until accounting tells its end."""

from __future__ import annotations

import time
from collections.abc import Iterable

from predictor.errors import StepReportError
from predictor.site.ended_job import EndedJob
from predictor.site.history.run import Reported
from predictor.site.history.step_reports import reported

from ..cluster import SlurmJob
from ..config import SlurmPolicy
from ..watch.reports import find_report
from ..watch.revision import objection

MAX_KEPT = 100_000  # about 50 MB
Key = tuple[str, int]


class Reports:
    """Reports by job, the oldest forgotten first where there are too many.

    A report is the user's claim: one that cannot be of this run of the job is not taken.
    """

    def __init__(self) -> None:
        self._kept: dict[Key, Reported] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def look(self, queue: Iterable[SlurmJob], policy: SlurmPolicy) -> None:
        """Read what the running jobs say, with no more rights than their users have."""
        training = (job for job in queue if job.state == "RUNNING" and job.gpus)
        for job in training:
            if (found := _usable(job, policy)) is not None:
                # accounting names a component of a het job by its number or by its own id
                for name in {job.label, str(job.job_id)}:
                    self._keep(_key(name, job.submit_s), found)

    def of(self, job: EndedJob) -> Reported | None:
        """What a job reported last, None where nothing usable is known."""
        return self._kept.get(_key(job.job_id, job.submit_s))

    def _keep(self, key: Key, reported: Reported) -> None:
        self._kept.pop(key, None)
        self._kept[key] = reported
        while len(self._kept) > MAX_KEPT:
            del self._kept[next(iter(self._kept))]


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
