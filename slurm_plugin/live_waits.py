"""What each pending job of the queue waits for besides GPUs, as the capacity report replays it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from predictor.site.capacity.live import AfterJob, Waits

from .cluster import SlurmJob
from .dependencies import Dependencies, Dependency, parse
from .limit import MINUTE_S
from .sources.waits_text import Waiting

_NEVER = "DependencyNeverSatisfied"
# Reasons that the replay foresees, and those that other fields than the reason tell of.
_FORESEEN = frozenset(
    {
        "",
        "None",
        "Resources",
        "Priority",
        "Dependency",
        "JobArrayTaskLimit",
        "BeginTime",
        "Reservation",
        "JobHeldUser",
        "JobHeldAdmin",
        "JobHoldMaxRequeue",
        _NEVER,
    }
)
_OTHER_END = "it waits for a job that did not end as it asks"
_TO_FAIL = "it waits for a job to fail, which is not foreseen"
_NOTHING = Waiting()


@dataclass(slots=True)
class _Found:
    """Conditions while they are put together; ``times`` are moments that stand for jobs."""

    words: list[str] = field(default_factory=list)
    after: list[AfterJob] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


class Waiters:
    """Tells of each job of a queue, read at ``at_s``, what it waits for."""

    def __init__(self, queue: Iterable[SlurmJob], told: Mapping[str, Waiting], at_s: float) -> None:
        self._told, self._at_s = told, at_s
        self._queue = tuple(queue)
        self._by_id: defaultdict[str, list[SlurmJob]] = defaultdict(list)
        for job in self._queue:
            self._by_id[base(job)].append(job)

    def __call__(self, job: SlurmJob) -> Waits:
        """Nothing of a job that runs."""
        if job.state != "PENDING":
            return Waits()
        told = self._told.get(job.label, _NOTHING)
        asked = parse(told.dependency)
        found = _Found()
        for one in asked.every:
            self._add(found, one, job)
        if asked.any_of and found.times:
            found.after, found.times = [], [min(found.times)]
        if told.eligible_s is not None and told.eligible_s > self._at_s:
            found.times.append(told.eligible_s)
        return Waits(
            text=_text(found.words, told, self._at_s, any_of=asked.any_of),
            after=tuple(found.after),
            any_of=asked.any_of,
            at_most=told.at_most,
            not_before_s=max(found.times, default=None),
            never=_never(told, asked),
            reservation=told.reservation,
        )

    def _add(self, found: _Found, one: Dependency, job: SlurmJob) -> None:
        if one.kind == "afternotok":
            found.words.append(_words(one, job))
            return
        if one.kind == "singleton":
            others = [other for other in self._queue if _before(other, job)]
            found.words.append("end of others of this name")
        else:
            others = self._others(one, job)
            found.words.append(_words(one, job))
        for other in others:
            self._after(found, one, other)

    def _others(self, one: Dependency, job: SlurmJob) -> list[SlurmJob]:
        """The jobs of the queue that are meant; those that ended are in it no more."""
        task = _task(one, job)
        mine = self._by_id.get(one.job, [])
        return mine if task is None else [o for o in mine if o.label == f"{one.job}_{task}"]

    def _after(self, found: _Found, one: Dependency, other: SlurmJob) -> None:
        """A job without GPUs is not replayed: it counts as ending by its limit."""
        started = one.kind == "after"
        if started and other.state != "PENDING":
            found.times.append((other.start_s or self._at_s) + one.delay_s)
        elif other.gpus:
            found.after.append(AfterJob(job_id=other.label, started=started, delay_s=one.delay_s))
        elif started:
            found.times.append(self._at_s + one.delay_s)
        else:
            begins_s = self._at_s if other.state == "PENDING" else other.start_s or self._at_s
            found.times.append(begins_s + (other.limit_min or 0) * MINUTE_S)
            found.words[-1] += " (no GPUs: by its limit)"


def _never(told: Waiting, asked: Dependencies) -> str:
    """Why a job never starts, as far as is foreseen."""
    to_fail = [one.kind == "afternotok" for one in asked.every]
    if told.reason == _NEVER:
        return _OTHER_END
    return _TO_FAIL if any(to_fail) and (not asked.any_of or all(to_fail)) else ""


def base(job: SlurmJob) -> str:
    """The number that a whole array or het job goes by."""
    return job.label.partition("_")[0].partition("+")[0]


def _task(one: Dependency, job: SlurmJob) -> str | None:
    """The number of the task that is meant, None for all."""
    if one.kind == "aftercorr":
        return job.label.partition("_")[2] or None
    return None if one.task == "*" else one.task


def _before(other: SlurmJob, job: SlurmJob) -> bool:
    """Whether a singleton waits for another: of the same name and user, running or sent earlier."""
    if (other.name, other.user) != (job.name, job.user) or other.label == job.label:
        return False
    return other.state != "PENDING" or _sent(other) < _sent(job)


def _sent(job: SlurmJob) -> tuple[int, int]:
    return int(base(job)), int(job.label.partition("_")[2] or 0)


def _words(one: Dependency, job: SlurmJob) -> str:
    task = _task(one, job)
    name = one.job if task is None else f"{one.job}_{task}"
    what = {"after": "start", "afternotok": "failure"}.get(one.kind, "end")
    delay = f" + {one.delay_s / MINUTE_S:.0f} min" if one.delay_s else ""
    return f"{what} of {name}{delay}"


def _text(words: Iterable[str], told: Waiting, at_s: float, *, any_of: bool) -> str:
    joined = (" or " if any_of else ", ").join(dict.fromkeys(words))
    parts = [joined] if joined else []
    if told.eligible_s is not None and told.eligible_s > at_s:
        parts.append(f"{datetime.fromtimestamp(told.eligible_s, UTC):%Y-%m-%d %H:%M} UTC")
    if told.at_most is not None:
        parts.append(f"its array: {told.at_most} at once")
    foreseen = told.reason in _FORESEEN or "eserved" in told.reason
    return "; ".join(parts if foreseen else [*parts, f"{told.reason} (not simulated)"])
