"""Where a running job's report lies, read with no more rights than its user has."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from predictor.errors import StepReportError
from predictor.site.progress.reader import NOTHING, ProgressReading, read_file
from predictor.site.similar.request import stated_fields
from predictor.site.step_rate import StepReport, last_report, read_report, report_paths

from ..cluster import SlurmJob

# Evaluations, checkpoints and loaders that a program does not count take this share of what it
# counts, at most; what is beyond was the start of the job.
PAUSES = 0.1


def find_report(job: SlurmJob, file_name: str) -> StepReport | None:
    """The report of a job, None where it wrote none.

    Looked for in the job's directory (the file of this job alone, then ``file_name``), then in
    the end of its stdout. Raises StepReportError where there is one that cannot be used.
    """
    directory, output = Path(job.work_dir), Path(job.stdout)
    try:
        with acting_as(job.user) as uid:
            report = None
            if directory.is_absolute():
                paths = report_paths(directory, file_name, str(job.job_id))
                found = (read_report(path, owner=uid) for path in paths)
                report = next((one for one in found if one is not None), None)
            if report is not None and report.job_id in (str(job.job_id), job.label):
                return report
            said = last_report(output, owner=uid) if output.is_absolute() else None
            if said is not None and not said.job_id:
                said = replace(said, job_id=str(job.job_id))
            return said or report
    except OSError as error:
        raise StepReportError(f"cannot act as {job.user}: {error}") from None


def progress_of(job: SlurmJob, asked: str) -> ProgressReading:
    """What a running job's stdout says of its progress, read with no more rights than its user.

    ``asked`` is what the job states in the shared grammar: its length counts beside what its output
    says. What was left when it last wrote has become less since, by half at most: it may hang. Of
    the time that the printed rate does not account for, up to PAUSES of the rest comes again.
    """
    path, length = Path(job.stdout), stated_fields(asked)["length"]
    if not path.is_absolute():
        return NOTHING
    try:
        with acting_as(job.user) as uid:
            stated = f"total_{length.unit}={length.amount:.0f}" if length else ""
            found = read_file(path, owner=uid, stated=stated)
            written_s = path.lstat().st_mtime
    except (OSError, StepReportError):
        return NOTHING
    left_s, at, total = found.remaining_s, found.at, found.total
    if left_s is None:
        return found
    if at and total and at < total and job.start_s is not None:
        accounted_s = left_s * at / (total - at)
        more = (written_s - job.start_s) / accounted_s - 1 if accounted_s else 0.0
        left_s *= 1 + min(max(0.0, more), PAUSES)
    silent_s = max(0.0, time.time() - written_s)
    return replace(found, remaining_s=max(left_s - silent_s, left_s / 2))


@contextmanager
def acting_as(name: str) -> Iterator[int]:
    """Open files as this user while the block runs; only root can, others stay who they are.

    Gives the user's number; raises StepReportError where there is no such user. So a path of a user
    leads nowhere the user could not go, and a home that root may not read over the network is read
    all the same. Not for processes with other threads at work.
    """
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise StepReportError(f"user {name!a} is not known on this machine") from None
    if os.geteuid() != 0 or user.pw_uid == 0:
        yield user.pw_uid
        return
    groups, group = os.getgroups(), os.getegid()
    try:
        os.setgroups(os.getgrouplist(user.pw_name, user.pw_gid))
        os.setegid(user.pw_gid)
        os.seteuid(user.pw_uid)
        yield user.pw_uid
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)
