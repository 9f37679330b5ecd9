"""Limits of running jobs: find ours, read what they report, revise, write it back.

The report is the user's own claim about the job, so nothing here trusts it further than the cap
on extensions reaches, and a job that claims too little only shortens itself. Nothing is remembered
between two passes but what was already said in the log: the limit in the AdminComment is the only
state, so a watcher may be killed at any time.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from predictor.errors import StepReportError
from predictor.site.step_rate import StepReport

from ..cluster import Cluster, SlurmJob
from ..config import SlurmPolicy
from ..errors import SourceError
from ..limit import MINUTE_S, Bounds, bounds, slurm_time
from ..mark import JobMark, parse_mark
from ..protocol import HookRequest
from ..sources.commands import Commands
from ..sources.text import SlurmSource
from .reports import find_report, progress_of

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


def is_ours(job: SlurmJob, limit_min: int | None) -> bool:
    """True for a running job that has the limit of its mark: nobody has changed it since."""
    runs = job.state == "RUNNING" and job.start_s is not None
    return runs and limit_min is not None and limit_min == job.limit_min


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


def usable_report(
    job: SlurmJob, policy: SlurmPolicy, now_s: float, say: Callable[[str], object] = str
) -> StepReport | None:
    """The report of a running job, None where there is none; ``say`` hears why one is no use."""
    try:
        report = find_report(job, policy.watch.rate_file)
        wrong = None if report is None else objection(job, report, policy, now_s)
    except StepReportError as error:
        report, wrong = None, str(error)
    if wrong is not None:
        say(f"ignored: {wrong}")
    return None if wrong is not None else report


def needed_min(job: SlurmJob, report: StepReport, policy: SlurmPolicy, now_s: float) -> float:
    """Minutes the job needs from its start to its end, margins included.

    Every remaining step is taken to last as long as the median of recent ones, or as the mean of
    all of this run where that is longer: evaluations and checkpoints come again, the start-up
    does not. What follows the last step is allowed as long as the start-up is.
    """
    assert job.start_s is not None
    limits, watch = policy.limits, policy.watch
    startup_s = limits.startup_s
    rate_s = report.step_s
    if report.started_s is not None and report.written_s is not None and report.steps_of_run:
        wall_s = report.written_s - max(report.started_s, job.start_s) - report.paused_s
        rate_s = max(rate_s, (wall_s - startup_s) / report.steps_of_run)
    share = 1 + watch.margin_share + limits.pause_share
    remaining_s = report.remaining_steps * rate_s * share + startup_s
    return (max(0.0, now_s - job.start_s) + remaining_s) / MINUTE_S


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
    if not is_ours(job, mark.limit) or objection(job, report, policy, now_s) is not None:
        return None
    assert mark.limit is not None
    assert job.start_s is not None
    needed, step = needed_min(job, report, policy, now_s), policy.limits.rounding_min
    first = mark.limit if mark.first is None else mark.first
    if policy.watch.extend and needed > mark.limit:
        cap = math.floor(first * policy.watch.max_extension)
        if within.cap_min is not None:
            cap = min(cap, within.cap_min)
        limit_min = min(_rounded_up(needed, policy), cap)
        if limit_min - mark.limit < step:
            return None
    elif policy.watch.trim and report.remaining_steps:
        # Below what it ran no limit may be set, or Slurm would end the job at once.
        least_min = (now_s - job.start_s) / MINUTE_S + TRIM_HEADROOM_MIN
        limit_min = max(_rounded_up(max(needed, least_min), policy), within.floor_min)
        gain = mark.limit - limit_min
        if gain < step or gain <= TRIM_MIN or gain <= TRIM_SHARE * mark.limit:
            return None
    else:
        return None
    return Revision(
        job=job,
        old_min=mark.limit,
        limit_min=limit_min,
        needed_min=needed,
        mark=replace(mark, limit=limit_min, first=first),
    )


def _rounded_up(minutes: float, policy: SlurmPolicy) -> int:
    step = policy.limits.rounding_min
    return max(1, math.ceil(minutes / step) * step)


MAX_SAID = 100_000
_NUMBER = re.compile(r"[\d.]+")


@dataclass(slots=True)
class Watcher:
    """One pass after the other over the running jobs of a cluster.

    ``say`` takes one line for the log. ``dry_run`` and the mode ``advise`` change nothing.
    """

    source: SlurmSource
    say: Callable[[str], None]
    dry_run: bool = False
    _said: set[tuple[str, str]] = field(default_factory=set)

    def watch(self, policy: SlurmPolicy) -> tuple[Revision, ...]:
        """One pass; the revisions that were made, or would be. Raises SourceError."""
        if policy.watch.mode == policy.soft_time.mode == "off":
            return ()
        queue = self.source.queue()
        soft, found = tuple(self._grown(queue, policy)), tuple(self._revisions(queue, policy))
        told = () if policy.watch.mode == "apply" and not self.dry_run else found
        told += soft if self.dry_run else ()
        for revision in told:
            key = f"advice {revision.old_min} {revision.limit_min}"
            self._say_once(revision.job, f"advice: {_words(revision)}", key)
        due = tuple(r for r in (*soft, *found) if r not in told)
        now = {job.label: job for job in self.source.queue()} if due else {}
        return (*told, *(r for r in due if self._applied(r, now.get(r.job.label), policy)))

    def _grown(self, queue: Sequence[SlurmJob], policy: SlurmPolicy) -> Iterator[Revision]:
        """Soft limits that are due, whether new ones are written or not."""
        for job in queue:
            mark, now_s, left_min = parse_mark(job.admin_comment), time.time(), None
            if mark is None or not is_ours(job, mark.soft) or job.start_s is None:
                continue
            # Minutes that it still needs, as it reports or prints.
            report = usable_report(job, policy, now_s)
            if report is not None:
                ran_min = (now_s - job.start_s) / MINUTE_S
                left_min = needed_min(job, report, policy, now_s) - ran_min
            else:
                left_s = progress_of(job, mark.job).remaining_s
                left_min = None if left_s is None else left_s / MINUTE_S
            if (revision := grown(job, mark, left_min, policy, now_s)) is not None:
                yield revision

    def _revisions(self, queue: Sequence[SlurmJob], policy: SlurmPolicy) -> Iterator[Revision]:
        ours = [(j, m) for j in queue if (m := parse_mark(j.admin_comment))]
        keeps_out = policy.exclude.reason
        ours = [(j, m) for j, m in ours if is_ours(j, m.limit)]
        ours = [(j, m) for j, m in ours if not keeps_out(j.user, j.account, j.qos, j.partitions)]
        if not ours or policy.watch.mode == "off":
            return
        cluster = Cluster(
            taken_s=time.time(),
            partitions=self.source.partitions(),
            walls=self.source.wall_limits(),
        )
        for job, mark in ours:
            # An operator's update would pass MaxTime, MaxWall and the policy's own bounds.
            request = HookRequest(user=job.user, account=job.account, qos=job.qos)
            within = bounds(policy.limits, request, job.partitions, cluster)
            now_s = time.time()
            report = usable_report(job, policy, now_s, partial(self._say_once, job))
            if report is None:
                continue
            if (revision := revise(job, mark, report, policy, now_s, within)) is not None:
                yield revision

    def _applied(self, revision: Revision, now: SlurmJob | None, policy: SlurmPolicy) -> bool:
        """Write limit and mark, both or neither, unless the job ended or was changed meanwhile.

        Needs the rights of SlurmUser or root: Slurm lets nobody else write the mark.
        """
        before, limit_min = revision.job, revision.limit_min
        known = (before.state, before.limit_min, before.admin_comment)
        if now is None or (now.state, now.limit_min, now.admin_comment) != known:
            return False
        commands, update = Commands.of(policy.slurm), ("update", f"jobid={before.label}")
        comment = f"admincomment={revision.mark.text()}"
        try:
            commands.text("scontrol", *update, f"timelimit={limit_min}", comment)
        except SourceError as error:
            # slurmctld takes the comment first, and keeps it where it then refuses the limit.
            with contextlib.suppress(SourceError):
                commands.text("scontrol", *update, f"admincomment={before.admin_comment}")
            self._say_once(before, f"failed: {error}", f"failed {limit_min}")
            return False
        self.say(_line(before, _words(revision)))
        return True

    def _say_once(self, job: SlurmJob, text: str, key: str = "") -> None:
        """Say it of this job unless it was said before, be it with other numbers."""
        said = (job.label, key or _NUMBER.sub("#", text))
        if said in self._said:
            return
        if len(self._said) >= MAX_SAID:
            self._said.clear()
        self._said.add(said)
        self.say(_line(job, text))


def _words(revision: Revision) -> str:
    old, new = slurm_time(revision.old_min), slurm_time(revision.limit_min)
    text = f"{revision.kind} {old} -> {new}, needs {revision.needed_min:.0f} min"
    return text if revision.needed_min <= revision.limit_min else f"{text}, more than is allowed"


def _line(job: SlurmJob, text: str) -> str:
    """One line that can be grepped for the job, whatever the names in it hold."""
    line = f"precision-time watch: job {job.label} of {job.user}: {text}"
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
