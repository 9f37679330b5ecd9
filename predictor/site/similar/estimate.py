"""How long a job will hold its GPUs: one function of what it asks and what the site knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, log, sqrt
from typing import Any

import numpy as np

from profiles.gpus import known_name

from ...errors import PrecisionTimeError
from ...estimate.assumptions import Assumption
from ...estimate.core import Predictor
from ...estimate.prediction import Prediction
from ...identify.grammar import parse_text
from ...units import count, duration
from .memory import SimilarRuns, SiteMemory
from .past_runs import RunEnd
from .request import ASSUMED, OWN, SAME_JOB, JobRequest, Similarity
from .run_times import LEVELS, TOLD_LEVEL, Floats, RunTimes

PHYSICS_LEVELS = (0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95)
KEPT = 4096


class PhysicsView:
    """A predictor, asked about requests; what it cannot price it says nothing of.

    A job that states no GPU type may get any of ``gpus``: it is predicted for the middle one.
    """

    def __init__(self, predictor: Predictor, source: str = "", gpus: Sequence[str] = ()) -> None:
        self._predictor, self._source, self._gpus = predictor, source, tuple(gpus)
        self._answer = lru_cache(KEPT)(self._predicted)

    def prediction(self, job: JobRequest) -> Prediction | None:
        """The prediction of a request, None where it names no network or not enough else."""
        found = self._on_each(job)
        if len(found) < 2:
            return next(iter(found), None)
        taken = found[len(found) // 2]
        of = [one.step_s / taken.step_s for one in found]
        why = f"no GPU type is stated; {found[0].job.gpu} to {found[-1].job.gpu} are likely"
        assumed = Assumption("gpu", taken.job.gpu, why, min(of), max(of))
        return replace(taken, assumptions=(assumed, *taken.assumptions))

    def told(self, job: JobRequest) -> str | None:
        """What it says of a request, empty without a length, None where it says nothing."""
        if (found := self.prediction(job)) is None or found.total_s is None:
            return None if found is None else ""
        of = found.job
        return f"{of.model} takes {duration(found.total_s)} on {of.gpus} {of.gpu}"

    def refusal(self, job: JobRequest) -> str:
        """Why a request cannot be priced, empty where it can be or names no network."""
        return next((one for one in self._answers(job) if isinstance(one, str)), "")

    def _on_each(self, job: JobRequest) -> list[Prediction]:
        return [one for one in self._answers(job) if not isinstance(one, str)]

    def _answers(self, job: JobRequest) -> list[Prediction | str]:
        """A prediction for each GPU that it may get, or why there is none."""
        if not job.asked or not job.gpus:
            return []
        gpus: Sequence[str] = (job.gpu_type,)
        if self._gpus and not job.gpu_type and "gpu" not in parse_text(job.asked, "request").values:
            gpus = self._gpus
        return [self._answer(job.asked, gpu, job.gpus) for gpu in gpus]

    def ratio(self, ran: JobRequest, job: JobRequest) -> float | None:
        """The ln of how much longer a sample takes on the GPUs of the job; None where unknown."""
        one, two = self.prediction(ran), self.prediction(job)
        if one is None or two is None:
            return None
        if job.length is not None and job.length.unit == "steps":
            return log(two.step_s / one.step_s)
        return log(one.throughput / two.throughput)

    def ln_s(self, job: JobRequest) -> Floats | None:
        """Run times (n,) in ln seconds that are alike likely; None where no length is stated."""
        found = [one for one in self._on_each(job) if one.total_s is not None]
        if not found:
            return None
        return np.log([one.total_quantile_s(q) or 1.0 for one in found for q in PHYSICS_LEVELS])

    def _predicted(self, asked: str, gpu_type: str, gpus: int) -> Prediction | str:
        stated = parse_text(asked, "request")
        working = min(gpus, stated.values.get("gpus", gpus))  # of several one process uses one
        given: dict[str, Any] = {"gpus": working} if gpus else {}
        word = stated.values.get("gpu")  # may leave open which of several cards it is
        if gpu_type and (word is None or known_name(word) != gpu_type):
            given["gpu"] = gpu_type
        try:
            job = stated.job(**given)
            return self._predictor.predict(job.but(source=self._source, **given))
        except PrecisionTimeError as error:
            return str(error)


# Similar runs that a limit rests on, submitted so many times, and the share that may hit theirs.
LIMIT_RUNS, LIMIT_BATCHES, LIMIT_CUT_OFF = 5, 3, 0.25
# A limit is so many times what a share of similar runs needed, and no less than the longest.
LIMIT_MARGIN = 1.5
# No job counts in the order of the queue as longer than this share of a long limit of the site; a
# bound is never shorter than so many seconds: where limits are short, waits may still be days.
ORDER_SHARE, ORDER_LEAST_S = 0.6, 12 * 3600.0
# Of similar runs so little is not worth a word.
TOLD_SHARE = 0.05
_ALL = (0.0, *LEVELS, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The run time of a job, from its start to its end however it ends, in seconds.

    ``mean_s`` is the mean, where runs beyond the 95 % quantile, or guesses at such, count as that
    long; ``limit_s`` is the limit its user asked for. ``similar`` are the runs it rests on,
    the most telling first, and ``physics`` is what physics said, empty for nothing.
    ``long_limit_s`` is what one in twenty of the site's latest limits exceeds, else run times.
    """

    mean_s: float
    limit_s: float | None
    has_user: bool
    similar: tuple[SimilarRuns, ...]
    physics: str
    times: RunTimes
    read_at: tuple[float, ...]
    long_limit_s: float = inf

    @property
    def expected_s(self) -> float:
        """The expected run time: half of such jobs run longer."""
        return self.quantile_s(0.5)

    @property
    def reaches_limit(self) -> bool:
        """Whether half of such jobs are cut off by the limit that the user asked for."""
        return bool(self.limit_s) and self.expected_s >= (self.limit_s or 0.0)

    def quantile_s(self, level: float) -> float:
        """Seconds that a share ``level`` of such jobs run at most."""
        return self.times.quantile_s(float(np.interp(level, _ALL, (0.0, *self.read_at, 1.0))))

    def covering_s(self, limit_s: float, level: float = TOLD_LEVEL) -> float:
        """A limit for a share ``level`` of such jobs, never shorter than what is told with it."""
        return max(limit_s, self.quantile_s(min(level, TOLD_LEVEL)))

    def left_s(self, level: float, ran_s: float) -> float:
        """Seconds that a job which has run ``ran_s`` still runs, among those that run longer.

        ``level`` is the share of them that end sooner. Of a job that waits ``ran_s`` is 0.
        """
        below = self.times.share_below(log(ran_s)) if ran_s > 1 else 0.0
        passed = float(np.interp(below, (0.0, *self.read_at, 1.0), _ALL))
        return max(0.0, self.quantile_s(passed + level * (1 - passed)) - ran_s)

    def order_s(self, level: float) -> float:
        """What the queue is ordered by: short jobs first, by what is known of them.

        At least the mean run time: the median of a job that fails at once or runs for a day
        says nothing of the day. A limit is its user's guess, and counts half in the logarithm. No
        job counts as longer than a share of a long limit here, at least half a day: a long and wide
        one that stands back for days is one that the whole machine has to wait for in the end.
        """
        known_s = max(self.mean_s, self.quantile_s(level))
        bound_s = max(ORDER_SHARE * self.long_limit_s, ORDER_LEAST_S)
        return min(sqrt(known_s * (self.limit_s or known_s)), bound_s)

    @property
    def runs(self) -> int:
        """How many runs of the same user like it there were."""
        return next((one.seen for one in self.similar if one.similarity in OWN), 0)

    @property
    def evidence(self) -> tuple[str, ...]:
        """What spoke, the most telling first."""
        runs = tuple(_words(one) for one in self.similar if one.share >= TOLD_SHARE)
        return (self.physics, *runs) if self.physics else runs

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What is not known."""
        told = []
        known = {one.similarity for one in self.similar}
        if not known and self.limit_s:
            told.append("nothing is known of this site: any share of the limit is taken as likely")
        elif not known:
            told.append("nothing is known of this site: a minute to two weeks are taken as likely")
        elif not known & {*OWN, *ASSUMED, Similarity.USER}:
            who = "this user" if self.has_user else "a job without a user"
            told.append(f"nothing is known of {who}: others at this site stand for it")
        if known & {*ASSUMED}:
            told.append("runs that tell no directory, or no script, are taken for this job's")
        if not self.limit_s:
            told.append("no time limit is known")
        return tuple(told)


def estimate_job(
    job: JobRequest, memory: SiteMemory, physics: PhysicsView | None = None
) -> Estimate:
    """The estimate of any job, the first of a new user at a new site included."""
    words = None if physics is None else physics.told(job)
    if physics is None or words is None:
        found = memory.recall(job)
    else:
        found = memory.recall(job, physics=physics.ratio, predicted=physics.ln_s(job))
        errors = len(memory.errors.physics)
        why = f"by the errors on {count(errors)} jobs" if errors else "no job told its error yet"
        words = words and f"physics: {words} ({found.physics_share:.0%} of the answer, {why})"
    read_at = memory.coverage.levels()
    upper_s = found.times.quantile_s(read_at[LEVELS.index(TOLD_LEVEL)])
    return Estimate(
        mean_s=found.times.mean_s(upper_s),
        limit_s=job.limit_s,
        has_user=bool(job.user),
        similar=found.similar,
        physics=words or "",
        times=found.times,
        read_at=read_at,
        long_limit_s=memory.long_limit_s,
    )


def carried_limit_s(job: JobRequest, memory: SiteMemory, level: float) -> float | None:
    """A limit that the user's own similar runs carry; None where they do not.

    At least LIMIT_RUNS of the same script, command or name completed, not all tasks of one or two
    arrays, few hit their limit, and none had to be brought here by a guess, as from GPUs that
    nobody measured.
    """
    found = memory.recall(job, needed=True)
    own = next((one for one in found.similar if one.similarity in SAME_JOB), None)
    if own is None or own.assumed:
        return None
    completed = [run.batch for run in own.runs if run.ended is RunEnd.COMPLETED]
    cut_off = sum(run.ended is RunEnd.CUT_OFF for run in own.runs)
    if len(completed) < LIMIT_RUNS or len(set(completed)) < LIMIT_BATCHES:
        return None
    if cut_off > LIMIT_CUT_OFF * len(own.runs):
        return None
    return LIMIT_MARGIN * max(found.times.quantile_s(level), own.longest_s)


def _words(one: SimilarRuns) -> str:
    seen = f"{count(one.seen)} {'run' if one.seen == 1 else 'runs'}"
    latest = "" if one.seen <= len(one.runs) else f", of which the latest {len(one.runs)} count"
    middle = float(np.median([run.run_s for run in one.runs]))
    notes = "".join(f"; {note}" for note in one.notes)
    return (
        f"{seen} {one.similarity.words}{latest}: median {duration(middle)} "
        f"({one.share:.0%} of the answer){notes}"
    )
