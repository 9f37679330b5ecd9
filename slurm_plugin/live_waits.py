"""What each pending job of the queue waits for besides GPUs, as the capacity report replays it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from predictor.site.capacity.live import AfterJob, Waits

from .cluster import SlurmJob
from .limit import MINUTE_S
from .sources.commands import Commands
from .sources.text import array_tasks, table
from .sources.words import stated, unix_s

FIELDS = (
    "JobID,ArrayJobID,ArrayTaskID,HetJobID,HetJobOffset,Reason,Dependency,EligibleTime,Reservation"
)
_ONE = re.compile(
    r"(?P<kind>\w+)(?::(?P<job>\d+)(?:_(?P<task>\d+|\*))?(?:\+(?P<minutes>\d+))?)?(?:\((?P<state>\w+)\))?"
)
_NEVER = {
    "DependencyNeverSatisfied": "it waits for a job that did not end as it asks",
    "PartitionTimeLimit": "its limit is longer than its partition allows",
}
# Reasons that the replay foresees, and those that other fields than the reason tell of.
_FORESEEN = (
    "None,Resources,Priority,Dependency,JobArrayTaskLimit,BeginTime,Reservation,"
    f"JobHeldUser,JobHeldAdmin,JobHoldMaxRequeue,{','.join(_NEVER)}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """One condition; ``kind`` is Slurm's word, ``task`` a number, ``*`` for all, or None."""

    kind: str
    job: str = ""
    task: str | None = None
    delay_s: float = 0.0


def parse(text: str) -> tuple[Dependency, ...]:
    """The conditions of a text as ``squeue`` prints it, joined by ``,`` or by ``?`` for or.

    Of those of which one is enough, ones that have failed are skipped.
    """
    found = (_ONE.fullmatch(part) for part in re.split("[,?]", text) if part)
    return tuple(
        Dependency(
            kind=match["kind"],
            job=match["job"] or "",
            task=match["task"],
            delay_s=MINUTE_S * int(match["minutes"] or 0),
        )
        for match in found
        if match and not ("?" in text and match["state"] == "failed")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Slurm's words on one pending job; ``eligible_s`` in Unix seconds, None where not known.

    ``at_most`` tasks of its array run at once, None where it states no such number.
    """

    reason: str = ""
    dependency: str = ""
    eligible_s: float | None = None
    reservation: str = ""
    at_most: int | None = None


def waiting_of(commands: Commands) -> Mapping[str, Waiting]:
    """Those of all pending jobs by their label; raises SourceError."""
    # without -r, for only the record of all waiting tasks tells how many may run at once
    found = list(table(commands, FIELDS, "-t", "PENDING"))
    limits = ((row["ArrayJobID"], row["ArrayTaskID"].partition("%")[2]) for row in found)
    most = {array: int(number) for array, number in limits if number.isdecimal()}
    told: dict[str, Waiting] = {}
    for row in found:
        waiting = Waiting(
            reason=stated(row["Reason"]),
            dependency=stated(row["Dependency"]),
            eligible_s=unix_s(row["EligibleTime"]),
            reservation=stated(row["Reservation"]),
            at_most=most.get(row["ArrayJobID"]),
        )
        tasks = [f"{row['ArrayJobID']}_{task}" for task in array_tasks(row["ArrayTaskID"])]
        if row["HetJobID"].isdecimal() and row["HetJobID"] != "0":
            tasks = [f"{row['HetJobID']}+{row['HetJobOffset']}"]
        told |= dict.fromkeys(tasks or [row["JobID"]], waiting)
    return told


class Waiters:
    """Tells of each job of a queue, read at ``at_s``, what it waits for."""

    def __init__(self, queue: Iterable[SlurmJob], told: Mapping[str, Waiting], at_s: float) -> None:
        self._told, self._at_s = told, at_s
        self._queue = tuple(queue)
        self._by_id: defaultdict[str, list[SlurmJob]] = defaultdict(list)
        for job in self._queue:
            self._by_id[_base(job)].append(job)

    def __call__(self, job: SlurmJob) -> Waits:
        """Nothing of a job that runs."""
        if job.state != "PENDING":
            return Waits()
        told = self._told.get(job.label, Waiting())
        asked, any_of = parse(told.dependency), "?" in told.dependency
        words, after, times = dict[str, None](), list[AfterJob](), list[float]()
        for one in asked:
            text, jobs, moments = self._condition(one, job)
            words[text] = None
            after, times = after + jobs, times + moments
        if any_of and times:
            after, times = [], [min(times)]
        parts = [(" or " if any_of else ", ").join(words)] if words else []
        if told.eligible_s is not None and told.eligible_s > self._at_s:
            times.append(told.eligible_s)
            begin = datetime.fromtimestamp(told.eligible_s, UTC)
            parts.append(f"not before {begin:%Y-%m-%d %H:%M} UTC")
        if told.at_most is not None:
            parts.append(f"its array: {told.at_most} at once")
        if told.reason and told.reason not in _FORESEEN.split(",") and "eserved" not in told.reason:
            parts.append(f"{told.reason} (not simulated)")
        to_fail = [one.kind == "afternotok" for one in asked]
        never = _NEVER.get(told.reason, "")
        if not never and any(to_fail) and (not any_of or all(to_fail)):
            never = "it waits for a job to fail, which is not foreseen"
        return Waits(
            text="; ".join(parts),
            after=tuple(after),
            any_of=any_of,
            at_most=told.at_most,
            not_before_s=max(times, default=None),
            never=never,
            reservation=told.reservation,
        )

    def _condition(self, one: Dependency, job: SlurmJob) -> tuple[str, list[AfterJob], list[float]]:
        """In words, the jobs of the queue that are meant, and moments that stand for jobs.

        A job without GPUs is not replayed: it counts as ending by its limit. Those that ended are
        in the queue no more.
        """
        if one.kind == "singleton":
            text = "end of others of this name"
            mine = [other for other in self._queue if _before(other, job)]
        else:
            task = None if one.task == "*" else one.task
            if one.kind == "aftercorr":
                task = job.label.partition("_")[2] or None
            name = one.job if task is None else f"{one.job}_{task}"
            delay = f" + {one.delay_s / MINUTE_S:.0f} min" if one.delay_s else ""
            what = {"after": "start", "afternotok": "failure"}.get(one.kind, "end")
            text = f"{what} of {name}{delay}"
            mine = [] if one.kind == "afternotok" else self._by_id.get(one.job, [])
            mine = [other for other in mine if task is None or other.label == name]
        started, after, times = one.kind == "after", list[AfterJob](), list[float]()
        for other in mine:
            pending = other.state == "PENDING"
            begins_s = self._at_s if pending else other.start_s or self._at_s
            if other.gpus and (pending or not started):
                after.append(AfterJob(job_id=other.label, started=started, delay_s=one.delay_s))
            elif started:
                times.append(begins_s + one.delay_s)
            else:
                times.append(begins_s + (other.limit_min or 0) * MINUTE_S)
                text = text.removesuffix(" (no GPUs: by its limit)") + " (no GPUs: by its limit)"
        return text, after, times


def _base(job: SlurmJob) -> str:
    """The number that a whole array or het job goes by."""
    return job.label.partition("_")[0].partition("+")[0]


def _before(other: SlurmJob, job: SlurmJob) -> bool:
    """Whether a singleton waits for another: of the same name and user, running or sent earlier."""
    if (other.name, other.user) != (job.name, job.user) or other.label == job.label:
        return False
    sent, own = ((int(_base(j)), int(j.label.partition("_")[2] or 0)) for j in (other, job))
    return other.state != "PENDING" or sent < own
