"""How long a job will hold its GPUs: one function of what it asks and what the site knows."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from ...units import count, duration
from .coverage import LEVELS
from .memory import Recollection, SimilarRuns, SiteMemory, nothing_known
from .past_runs import RunEnd
from .physics import PhysicsView
from .request import OWN, JobRequest, Similarity
from .run_times import RunTimes

# Similar runs that a limit rests on, and the share of them that may have hit theirs.
LIMIT_RUNS, LIMIT_CUT_OFF = 5, 0.25
# A limit is so many times what a share of similar runs needed, and no less than the longest.
LIMIT_MARGIN = 1.5
# Of similar runs so little is not worth a word.
TOLD_SHARE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The run time of a job, from its start to its end however it ends, in seconds.

    ``expected_s`` is the mean, ``runs`` how many runs of the same user like it there were.
    ``evidence`` says what spoke, the most telling first, ``assumptions`` what is not known.
    ``limit_s`` is the limit the user asked for.
    """

    expected_s: float
    limit_s: float | None
    runs: int
    evidence: tuple[str, ...]
    assumptions: tuple[str, ...]
    times: RunTimes
    read_at: tuple[float, ...]

    def quantile_s(self, level: float) -> float:
        """Seconds that a share ``level`` of such jobs run at most."""
        return self.times.quantile_s(float(np.interp(level, LEVELS, self.read_at)))

    def order_s(self, level: float) -> float:
        """What the queue is ordered by: short jobs first, by what is known of them.

        At least the expected run time: the median of a job that fails at once or runs for a day
        says nothing of the day. A limit is its user's guess, and counts half in the logarithm.
        """
        known_s = max(self.expected_s, self.quantile_s(level))
        return known_s if self.limit_s is None else sqrt(known_s * self.limit_s)


def estimate_job(
    job: JobRequest, memory: SiteMemory, physics: PhysicsView | None = None
) -> Estimate:
    """The estimate of any job, the first of a new user at a new site included."""
    found = _recalled(job, memory, physics)
    own = next((one for one in found.similar if one.similarity in OWN), None)
    return Estimate(
        expected_s=found.times.mean_s(),
        limit_s=job.limit_s,
        runs=0 if own is None else own.seen,
        evidence=tuple(_evidence(found, memory, job, physics)),
        assumptions=tuple(_assumptions(found, job)),
        times=found.times,
        read_at=tuple(memory.coverage.level(level) for level in LEVELS),
    )


def carried_limit_s(job: JobRequest, memory: SiteMemory, level: float) -> float | None:
    """A limit that the user's own similar runs carry; None where they do not.

    At least LIMIT_RUNS of them completed, few hit their limit, and none had to be brought here
    from other GPUs or another length.
    """
    found = memory.recall(job, needed=True)
    own = next((one for one in found.similar if one.similarity in OWN), None)
    if own is None or own.scaled:
        return None
    completed = [run.run_s for run in own.runs if run.ended is RunEnd.COMPLETED]
    cut_off = sum(run.ended is RunEnd.CUT_OFF for run in own.runs)
    if len(completed) < LIMIT_RUNS or cut_off > LIMIT_CUT_OFF * len(own.runs):
        return None
    return LIMIT_MARGIN * max(found.times.quantile_s(level), *completed)


def _recalled(job: JobRequest, memory: SiteMemory, physics: PhysicsView | None) -> Recollection:
    if physics is None or not job.asked:
        return memory.recall(job, physics=nothing_known)
    return memory.recall(job, physics=physics.ratio, predicted=physics.ln_s(job))


def _evidence(
    found: Recollection, memory: SiteMemory, job: JobRequest, physics: PhysicsView | None
) -> list[str]:
    told = [_words(one) for one in found.similar if one.share >= TOLD_SHARE]
    prediction = None if physics is None or not job.asked else physics.prediction(job)
    if prediction is not None and prediction.total_s is not None:
        share = memory.errors.physics_share
        told.insert(
            0,
            f"physics: {prediction.job.model} takes {duration(prediction.total_s)} on "
            f"{prediction.job.gpus} {prediction.job.gpu} ({share:.0%} of the answer, by the errors "
            f"on {count(len(memory.errors.physics))} jobs here)",
        )
    return told


def _words(one: SimilarRuns) -> str:
    seen = f"{count(one.seen)} {'run' if one.seen == 1 else 'runs'}"
    latest = "" if one.seen <= len(one.runs) else f", of which the latest {len(one.runs)} count"
    middle = float(np.median([run.run_s for run in one.runs]))
    notes = "".join(f"; {note}" for note in one.notes)
    return (
        f"{seen} {one.similarity.words}{latest}: median {duration(middle)} "
        f"({one.share:.0%} of the answer){notes}"
    )


def _assumptions(found: Recollection, job: JobRequest) -> list[str]:
    told = []
    known = {one.similarity for one in found.similar}
    if not known & {*OWN, Similarity.USER}:
        who = "this user" if job.user else "a job without a user"
        told.append(f"nothing is known of {who}: others at this site stand for it")
    if not known:
        told[-1] = "nothing is known of this site: any share of the limit is taken for as likely"
        if job.limit_s is None:
            told[-1] = "nothing is known of this site: one minute to two days are taken as likely"
    if job.limit_s is None:
        told.append("no time limit is known")
    return told
