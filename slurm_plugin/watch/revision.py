"""Whether the limit of one running job should change, and to what: arithmetic without Slurm.

The report is the user's own claim about the job, so nothing here trusts it further than the cap
on extensions reaches, and a job that claims too little only shortens itself.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace

from predictor.site.step_rate import StepReport

from ..cluster import SlurmJob
from ..config import Slurm, SlurmPolicy
from ..errors import SourceError
from ..limit import MINUTE_S, Bounds
from ..mark import JobMark
from ..sources.commands import Commands

FRESH_S = 600.0
FRESH_STEPS = 50
FUTURE_S = 300.0  # clocks of nodes differ
# A soft limit grows from this share on, by at least this factor, and before so many passes.
GROW_SHARE, GROWTH = 0.8, 1.5
PASSES, LEAST_AHEAD_MIN = 2, 1.5
# A trim must free this much of the limit, and this long, to be worth an update.
TRIM_SHARE = 0.2
TRIM_MIN = 15
TRIM_HEADROOM_MIN = 5  # slurmctld looks at limits twice a minute


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A new limit for a running job; all times in minutes.

    ``needed_min`` is what the job is expected to need, above ``limit_min`` where the cap held it
    back. ``mark`` is what the job's AdminComment is to say then.
    """

    job: SlurmJob
    old_min: int
    limit_min: int
    needed_min: float
    mark: JobMark

    @property
    def kind(self) -> str:
        """``extend`` or ``trim``."""
        return "extend" if self.limit_min > self.old_min else "trim"


def is_ours(job: SlurmJob, mark: JobMark | None) -> bool:
    """True for a running job whose limit is the one we set and nobody has changed since."""
    return (
        mark is not None
        and mark.limit is not None
        and mark.limit == job.limit_min
        and job.state == "RUNNING"
        and job.start_s is not None
    )


def is_soft(job: SlurmJob, mark: JobMark | None) -> bool:
    """True for a running job whose limit is the one that backfill took from our TimeMin."""
    is_same = mark is not None and mark.soft is not None and mark.soft == job.limit_min
    return is_same and job.state == "RUNNING" and job.start_s is not None


def grown(
    job: SlurmJob, mark: JobMark, left_min: float | None, policy: SlurmPolicy, now_s: float
) -> Revision | None:
    """The longer limit of a job with a soft one, None where that is not due.

    Due at GROW_SHARE of it, or before the last passes. It then holds the minutes that progress
    says are left, and at least GROWTH times what it was; never more than the job's whole limit.
    """
    assert job.start_s is not None
    assert mark.soft is not None
    ran_min = (now_s - job.start_s) / MINUTE_S
    ahead_min = max(LEAST_AHEAD_MIN, PASSES * policy.watch.interval_s / MINUTE_S)
    last = mark.soft - ran_min < ahead_min
    if ran_min < GROW_SHARE * mark.soft and not last:
        return None
    needed = mark.soft * GROWTH
    if left_min is not None:
        ends_min = ran_min + left_min * (1 + policy.watch.margin_share)
        if ends_min < mark.soft and not last:
            return None
        needed = max(ends_min, ran_min + 2 * ahead_min)
    whole = math.inf if mark.cap is None else mark.cap
    limit_min = int(min(_rounded_up(needed, policy), whole))
    if limit_min <= mark.soft:
        return None
    changed = replace(mark, soft=limit_min)
    return Revision(
        job=job, old_min=mark.soft, limit_min=limit_min, needed_min=needed, mark=changed
    )


def objection(job: SlurmJob, report: StepReport, policy: SlurmPolicy, now_s: float) -> str | None:
    """Why a report says nothing about this job now; None where it can be used."""
    if report.job_id not in (str(job.job_id), job.label) or not report.job_id:
        return f"the report is of job {report.job_id or '(not stated)'}"
    start_s = job.start_s
    written_s = report.written_s
    if start_s is None or written_s is None or written_s < start_s:
        return "the report is older than this run of the job"
    if written_s > now_s + FUTURE_S:
        return f"written_s={written_s:.0f} lies in the future"
    if now_s - written_s > max(FRESH_S, FRESH_STEPS * report.step_s):
        return f"the report is {(now_s - written_s) / MINUTE_S:.0f} min old"
    if report.step_s > now_s - start_s:
        return f"step_s={report.step_s:g} is longer than the job has run"
    if report.steps_of_run < policy.watch.min_steps:
        return f"{report.steps_of_run} of {policy.watch.min_steps} steps are reported"
    return None


def needed_min(job: SlurmJob, report: StepReport, policy: SlurmPolicy, now_s: float) -> float:
    """Minutes the job needs from its start to its end, margins included.

    Every remaining step is taken to last as long as the median of recent ones, or as the mean of
    all of this run where that is longer: evaluations and checkpoints come again, the start-up
    does not. What follows the last step is allowed as long as the start-up is.
    """
    assert job.start_s is not None
    limits, watch = policy.limits, policy.watch
    startup_s = limits.startup_s
    rate_s = max(report.step_s, _mean_step_s(job.start_s, report, startup_s))
    share = 1 + watch.margin_share + limits.pause_share
    remaining_s = report.remaining_steps * rate_s * share + startup_s
    return (max(0.0, now_s - job.start_s) + remaining_s) / MINUTE_S


def _mean_step_s(start_s: float, report: StepReport, startup_s: float) -> float:
    if report.started_s is None or report.written_s is None or not report.steps_of_run:
        return 0.0
    wall_s = report.written_s - max(report.started_s, start_s) - report.paused_s
    return max(0.0, wall_s - startup_s) / report.steps_of_run


def revise(
    job: SlurmJob,
    mark: JobMark,
    report: StepReport,
    policy: SlurmPolicy,
    now_s: float,
    within: Bounds,
) -> Revision | None:
    """The new limit of a running job, None where it stays.

    ``within`` holds the limits of the job's partition, QOS and association. Extensions end at
    ``max_extension`` times the limit set at submit.
    """
    if not is_ours(job, mark) or objection(job, report, policy, now_s) is not None:
        return None
    assert mark.limit is not None
    needed = needed_min(job, report, policy, now_s)
    if policy.watch.extend and needed > mark.limit:
        limit_min = _extended(mark, needed, policy, within)
    elif policy.watch.trim and report.remaining_steps:
        limit_min = _trimmed(mark.limit, max(needed, least_min(job, now_s)), policy, within)
    else:
        return None
    if limit_min is None:
        return None
    first = mark.limit if mark.first is None else mark.first
    return Revision(
        job=job,
        old_min=mark.limit,
        limit_min=limit_min,
        needed_min=needed,
        mark=replace(mark, limit=limit_min, first=first),
    )


def least_min(job: SlurmJob, now_s: float) -> float:
    """Below this no limit may be set, or Slurm would end the job at once."""
    assert job.start_s is not None
    return (now_s - job.start_s) / MINUTE_S + TRIM_HEADROOM_MIN


def _extended(mark: JobMark, needed: float, policy: SlurmPolicy, within: Bounds) -> int | None:
    assert mark.limit is not None
    first = mark.limit if mark.first is None else mark.first
    cap = math.floor(first * policy.watch.max_extension)
    if within.cap_min is not None:
        cap = min(cap, within.cap_min)
    limit_min = min(_rounded_up(needed, policy), cap)
    return limit_min if limit_min - mark.limit >= policy.limits.rounding_min else None


def _trimmed(old_min: int, needed: float, policy: SlurmPolicy, within: Bounds) -> int | None:
    limit_min = max(_rounded_up(needed, policy), within.floor_min)
    gain = old_min - limit_min
    worth = gain > TRIM_MIN and gain > TRIM_SHARE * old_min
    return limit_min if worth and gain >= policy.limits.rounding_min else None


def _rounded_up(minutes: float, policy: SlurmPolicy) -> int:
    step = policy.limits.rounding_min
    return max(1, math.ceil(minutes / step) * step)


def set_limit(revision: Revision, slurm: Slurm) -> None:
    """Write the limit and the mark on the job, both or neither; raises SourceError.

    Needs the rights of SlurmUser or root: Slurm lets nobody else write the mark.
    """
    job, commands = revision.job, Commands.of(slurm)
    target = f"jobid={job.label or job.job_id}"
    comment = f"admincomment={revision.mark.text()}"
    try:
        commands.run("scontrol", "update", target, f"timelimit={revision.limit_min}", comment)
    except SourceError:
        # slurmctld takes the comment first, and keeps it where it then refuses the limit.
        with contextlib.suppress(SourceError):
            commands.run("scontrol", "update", target, f"admincomment={job.admin_comment}")
        raise
