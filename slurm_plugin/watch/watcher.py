"""Following the running jobs: find ours, read what they report, revise, write it back.

Nothing is remembered between two passes but what was already said in the log: the limit in the
AdminComment is the only state, so a watcher may be killed at any time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from predictor.errors import StepReportError
from predictor.site.progress.reader import ProgressKind

from ..cluster import Cluster, SlurmJob
from ..config import SlurmPolicy
from ..errors import SourceError
from ..limit import MINUTE_S, Bounds, bounds
from ..mark import JobMark, parse_mark
from ..message import slurm_time
from ..protocol import HookRequest
from ..sources.text import SlurmSource
from .reports import find_report, progress_of
from .revision import Revision, grown, is_ours, is_soft, needed_min, objection, revise, set_limit

Say = Callable[[str], None]
MAX_SAID = 100_000
_NUMBER = re.compile(r"[\d.]+")


@dataclass(slots=True)
class Watcher:
    """One pass after the other over the running jobs of a cluster.

    ``say`` takes one line for the log. ``dry_run`` and the mode ``advise`` change nothing.
    """

    source: SlurmSource
    say: Say
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
        now = {_name(job): job for job in self.source.queue()} if due else {}
        return (*told, *(r for r in due if self._applied(r, now.get(_name(r.job)), policy)))

    def _grown(self, queue: Sequence[SlurmJob], policy: SlurmPolicy) -> Iterator[Revision]:
        """Soft limits that are due, whether new ones are written or not."""
        for job in queue:
            mark = parse_mark(job.admin_comment)
            if mark is not None and is_soft(job, mark):
                now_s = time.time()
                revision = grown(job, mark, self._left_min(job, policy, now_s), policy, now_s)
                if revision is not None:
                    yield revision

    def _left_min(self, job: SlurmJob, policy: SlurmPolicy, now_s: float) -> float | None:
        """Minutes that a job still needs, as it reports or prints; None where it says nothing."""
        assert job.start_s is not None
        try:
            report = find_report(job, policy.watch.rate_file)
        except StepReportError:
            report = None
        if report is not None and objection(job, report, policy, now_s) is None:
            return needed_min(job, report, policy, now_s) - (now_s - job.start_s) / MINUTE_S
        reading = progress_of(job)
        said_s = reading.remaining_s if reading.kind is ProgressKind.TRAINING else None
        return None if said_s is None else said_s / MINUTE_S

    def _revisions(self, queue: Sequence[SlurmJob], policy: SlurmPolicy) -> Iterator[Revision]:
        ours = [(j, m) for j in queue if (m := parse_mark(j.admin_comment))]
        ours = [(j, m) for j, m in ours if is_ours(j, m) and not _excluded(j, policy)]
        if not ours or policy.watch.mode == "off":
            return
        cluster = Cluster(
            taken_s=time.time(),
            partitions=self.source.partitions(),
            walls=self.source.wall_limits(),
        )
        for job, mark in ours:
            revision = self._revision(job, mark, policy, _within(job, policy, cluster))
            if revision is not None:
                yield revision

    def _revision(
        self, job: SlurmJob, mark: JobMark, policy: SlurmPolicy, within: Bounds
    ) -> Revision | None:
        try:
            report = find_report(job, policy.watch.rate_file)
        except StepReportError as error:
            self._say_once(job, f"ignored: {error}")
            return None
        if report is None:
            return None
        now_s = time.time()
        wrong = objection(job, report, policy, now_s)
        if wrong is not None:
            self._say_once(job, f"ignored: {wrong}")
            return None
        return revise(job, mark, report, policy, now_s, within)

    def _applied(self, revision: Revision, now: SlurmJob | None, policy: SlurmPolicy) -> bool:
        """Write it, unless the job ended or somebody changed it since it was read."""
        before = revision.job
        if now is None or (now.state, now.limit_min, now.admin_comment) != (
            before.state,
            before.limit_min,
            before.admin_comment,
        ):
            return False
        try:
            set_limit(revision, policy.slurm)
        except SourceError as error:
            self._say_once(before, f"failed: {error}", f"failed {revision.limit_min}")
            return False
        self.say(_line(before, _words(revision)))
        return True

    def _say_once(self, job: SlurmJob, text: str, key: str = "") -> None:
        """Say it of this job unless it was said before, be it with other numbers."""
        said = (_name(job), key or _NUMBER.sub("#", text))
        if said in self._said:
            return
        if len(self._said) >= MAX_SAID:
            self._said.clear()
        self._said.add(said)
        self.say(_line(job, text))


def _within(job: SlurmJob, policy: SlurmPolicy, cluster: Cluster) -> Bounds:
    """MaxTime, MaxWall and the policy's own bounds: an operator's update would pass them."""
    request = HookRequest(user=job.user, account=job.account, qos=job.qos)
    return bounds(policy.limits, request, job.partitions, cluster)


def _excluded(job: SlurmJob, policy: SlurmPolicy) -> bool:
    exclude = policy.exclude
    return (
        job.user in exclude.users
        or job.account in exclude.accounts
        or job.qos in exclude.qos
        or bool(exclude.partitions.intersection(job.partitions))
    )


def _name(job: SlurmJob) -> str:
    return job.label or str(job.job_id)


def _words(revision: Revision) -> str:
    old, new = slurm_time(revision.old_min), slurm_time(revision.limit_min)
    text = f"{revision.kind} {old} -> {new}, needs {revision.needed_min:.0f} min"
    return text if revision.needed_min <= revision.limit_min else f"{text}, more than is allowed"


def _line(job: SlurmJob, text: str) -> str:
    """One line that can be grepped for the job, whatever the names in it hold."""
    line = f"precision-time watch: job {_name(job)} of {job.user}: {text}"
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
