"""Which runs of a history tell the time of a step, and like runs as one measurement.

A million runs of a site become a few thousand rows. What runs take besides their steps, start-up
and pauses for checkpoints and tests, is learned too.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from math import exp, log

import numpy as np

from ...errors import JobError
from ...estimate.core import steps_of
from ...estimate.measurement import Measurement
from ...identify.grammar import parse_text
from ...job.training_job import SITE_PREFIX, TrainingJob
from ..history.run import CUT_OFF, ENDED_ITS_STEPS, JobState, Reported, Run
from ..similar.run_times import RunTimes

MIN_RUNS = 10
HIGH = 0.9
MAX_SAMPLES = 5_000  # of one cluster
# Runs with fewer seconds of steps tell nothing of the share of their pauses.
MIN_STEPS_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedTime:
    """Median and 90 % quantile of what ``runs`` runs reported, seconds or a ratio."""

    median: float
    high: float
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> FixedTime | None:
        """None where there are fewer than MIN_RUNS values."""
        if len(values) < MIN_RUNS:
            return None
        return cls(
            median=float(np.median(values)), high=float(np.quantile(values, HIGH)), runs=len(values)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedTimes:
    """Those of one cluster.

    ``startup_s`` is from the start of a job to its first step. ``pause_share`` is the time
    between steps, as a ratio of the time of the steps. None where too few runs said.
    """

    cluster: str
    startup_s: FixedTime | None = None
    pause_share: FixedTime | None = None


def fixed_times(runs: Iterable[Run]) -> tuple[FixedTimes, ...]:
    """Of every cluster with enough runs.

    ``runs`` come oldest first; the latest MAX_SAMPLES of each are looked at.
    """
    told: defaultdict[str, deque[Run]] = defaultdict(lambda: deque(maxlen=MAX_SAMPLES))
    for run in runs:
        if run.reported is not None:
            told[run.ended.cluster].append(run)
    found = []
    for cluster, rows in told.items():
        startup_s, pause_share = (
            FixedTime.of(_voices(rows, tell))
            for tell in (lambda said: said.startup_s, _pause_share)
        )
        if startup_s is not None or pause_share is not None:
            one = FixedTimes(cluster=cluster, startup_s=startup_s, pause_share=pause_share)
            found.append(one)
    return tuple(found)


def of_cluster(found: Iterable[FixedTimes], cluster: str) -> FixedTimes | None:
    """Those of a cluster; None where there are none."""
    return next((one for one in found if one.cluster == cluster), None)


def _voices(runs: Collection[Run], tell: Callable[[Reported], float | None]) -> list[float]:
    """What runs say; of one user's runs of one model no more than a tenth of all."""
    by_voice: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for run in runs:
        said = None if run.reported is None else tell(run.reported)
        if said is not None:
            by_voice[run.ended.user, run.model or ""].append(said)
    most = max(MIN_RUNS, len(runs) // 10)
    return [said for voice in by_voice.values() for said in voice[-most:]]


def _pause_share(said: Reported) -> float | None:
    if said.paused_s is None or said.step_s * said.steps < MIN_STEPS_S:
        return None
    return said.paused_s / (said.step_s * said.steps)


def site_source(cluster: str) -> str:
    """``TrainingJob.source`` of the jobs of a cluster; empty for a cluster without a name."""
    return cluster if not cluster or cluster.startswith(SITE_PREFIX) else SITE_PREFIX + cluster


class StepEvidence(StrEnum):
    """What a step time rests on."""

    REPORTED = "reported"
    ELAPSED = "elapsed"
    LOWER_BOUND = "lower bound"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRun:
    """A run with the job it was and seconds of one optimizer step.

    ``job.source`` is the site. ``step_s`` is below the truth for a ``LOWER_BOUND``: the run hit
    its limit before its last step. ``weight`` from 0 to 1 is how much of a measurement it counts,
    ``user`` whose word it is (hashed where the history is).
    """

    run: Run
    job: TrainingJob
    step_s: float
    kind: StepEvidence
    user: str
    weight: float = 1.0


MIN_STEPS = 20  # a report of fewer is of caches that warm up
MAX_LOADER_SHARE = 0.1  # of the step spent waiting for input: beyond, the GPU is not what is slow
# Start-up of a cluster that has reported none: nothing, or at most this, as the daemons assume.
UNKNOWN_STARTUP_S = 600.0
# What is not known of the start-up may be this share of a run whose elapsed time is a measurement.
MAX_DOUBT = 0.1
INTERRUPTED = (JobState.PREEMPTED, JobState.NODE_FAIL)


class RunReader:
    """Makes candidates of runs; ``fixed`` are the start-up and pauses known of the clusters."""

    def __init__(self, fixed: Iterable[FixedTimes] = ()) -> None:
        self._fixed = tuple(fixed)
        self._jobs = lru_cache(maxsize=8192)(_job)  # sweeps ask the same many times

    def of(self, run: Run) -> SiteRun | str:
        """The candidate, or why the run is none: a few words, the same for all such runs."""
        ended = run.ended
        if ended.start_s is None or ended.end_s <= ended.start_s:
            return "never ran"
        if run.model is None:
            return "model not known"
        if ended.state in INTERRUPTED:
            return "preempted or lost its node"
        if run.reported is not None and (run.reported.loader_bound or 0.0) > MAX_LOADER_SHARE:
            return "waited for input"
        job = self.job(run)
        if isinstance(job, str):
            return job
        found: tuple[float, StepEvidence] | str
        if run.reported is not None and run.reported.steps >= MIN_STEPS:
            found = run.reported.step_s, StepEvidence.REPORTED
        else:
            found = self._elapsed(run, job)
        if isinstance(found, str):
            return found
        step_s, kind = found
        return SiteRun(run=run, job=job, step_s=step_s, kind=kind, user=ended.user)

    def job(self, run: Run) -> TrainingJob | str:
        """The job it was on the GPUs it was given, or why that is not known."""
        ended = run.ended
        if ended.gpus < 1:
            return "no GPUs"
        # The scheduler's type, else the one it was predicted on.
        said = run.predicted.gpu if run.predicted is not None else None
        gpu = ended.gpu_type or said or run.gpu
        if gpu is None:
            return "GPU type not known"
        per_node = -(-ended.gpus // max(1, ended.nodes))
        return self._jobs(run.asked, gpu, ended.gpus, per_node, site_source(ended.cluster))

    def _elapsed(self, run: Run, job: TrainingJob) -> tuple[float, StepEvidence] | str:
        ended = run.ended
        if ended.state not in ENDED_ITS_STEPS:
            return "failed or cancelled without a report of its steps"
        try:
            steps = steps_of(job)
        except JobError:
            steps = None
        if steps is None:
            return "length not known"
        assert ended.start_s is not None
        elapsed_s = ended.end_s - ended.start_s
        startup_s, doubt_s, pause_share = self._besides(run)
        if elapsed_s <= startup_s or doubt_s > MAX_DOUBT * elapsed_s:
            return "too short for its start-up"
        step_s = (elapsed_s - startup_s) / (1 + pause_share) / steps
        cut_off = ended.state in CUT_OFF
        return step_s, StepEvidence.LOWER_BOUND if cut_off else StepEvidence.ELAPSED

    def _besides(self, run: Run) -> tuple[float, float, float]:
        """Start-up in seconds, what is not known of it, and the share of pauses."""
        known = of_cluster(self._fixed, run.ended.cluster)
        pause_share = known.pause_share.median if known and known.pause_share else 0.0
        if run.reported is not None and run.reported.startup_s is not None:
            return run.reported.startup_s, 0.0, pause_share
        if known is None or known.startup_s is None:
            return 0.0, UNKNOWN_STARTUP_S, pause_share
        startup = known.startup_s
        return startup.median, startup.high - startup.median, pause_share


def _job(asked: str, gpu: str, gpus: int, per_node: int, source: str) -> TrainingJob | str:
    """The job on the GPUs it was given, or why it is not a whole description."""
    stated = parse_text(asked, "history").facts
    if "phases" in stated.values:  # no step of them is the one that was measured
        return "ran in phases"
    try:
        asked_job = stated.job(gpu=gpu, gpus=gpus, gpus_per_node=per_node)
        return asked_job.but(gpu=gpu, gpus=gpus, gpus_per_node=per_node, source=source)
    except JobError as error:
        return f"{error.field} missing or invalid"


MAD_TO_DEVIATION = 1.4826  # of a normal distribution


def weighted_quantile(values: Sequence[float], weights: Sequence[float], level: float) -> float:
    """The smallest value at or below which a share ``level`` of the weight lies."""
    order = np.argsort(values, kind="stable")
    mass = np.cumsum(np.asarray(weights, dtype=np.float64)[order])
    at = int(np.searchsorted(mass, level * mass[-1] * (1 - 1e-12)))
    return float(np.asarray(values)[order[min(at, len(order) - 1)]])


def censored_median(
    values: Sequence[float], weights: Sequence[float], censored: Sequence[bool]
) -> float:
    """The median where ``censored`` values are known only as lower bounds.

    The largest value where fewer than half are known to be at most that: there it is, or further.
    """
    every, mass = np.asarray(values, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    times = RunTimes.of(every, mass, np.asarray(censored, dtype=bool), float(every.max()))
    return float(times.ln_s[np.searchsorted(times.cumulative, 0.5 - 1e-12)])


def spread(values: Sequence[float]) -> float:
    """Robust standard deviation: the median distance from the median, scaled as of a normal."""
    found = np.asarray(values, dtype=np.float64)
    return float(MAD_TO_DEVIATION * np.median(np.abs(found - np.median(found))))


# An outlier is this many robust deviations from the median of at least so many similar runs.
MAX_DEVIATIONS = 5.0
MIN_LIKE = 4
# Runs of one job on one cluster differ by this at least, so nothing nearer is an outlier.
LEAST_SPREAD = 0.03
OUTLIER = "far from similar runs"
ONLY_BOUNDS = "hit the limit, as all similar runs did"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGroup:
    """Runs of one configuration on one cluster.

    ``step_s`` is their median, runs that hit their limit taken as lower bounds. ``runs`` count
    those that were measured, ``bounds`` those that hit the limit; ``spread`` is the robust
    standard deviation of ln step time among the measured ones, None for fewer than MIN_LIKE.
    """

    job: TrainingJob
    step_s: float
    runs: int
    bounds: int
    users: int
    spread: float | None


@dataclass(frozen=True, slots=True)
class RunGroups:
    """All groups, and how many runs are in none of them by reason."""

    groups: tuple[RunGroup, ...]
    left: Counter[str]

    def measurements(self) -> list[Measurement]:
        """One row a group."""
        found = []
        for number, one in enumerate(self.groups):
            source, note = one.job.source, f"{one.runs} runs of {one.users} users"
            row = {"framework": one.job.framework, "note": note}
            found.append(Measurement(f"{source}/{number}", one.job, one.step_s, source, row))
        return found

    @property
    def spread(self) -> float | None:
        """Standard deviation of one run around its group in ln, None where no group is large."""
        known = [(group.spread, group.runs) for group in self.groups if group.spread is not None]
        if not known:
            return None
        spreads, runs = zip(*known, strict=True)
        return float(np.sqrt(np.average(np.square(spreads), weights=runs)))


def run_groups(candidates: Iterable[SiteRun]) -> RunGroups:
    """Join candidates of the same configuration; those without weight and outliers are left out."""
    members: defaultdict[TrainingJob, list[SiteRun]] = defaultdict(list)
    for candidate in candidates:
        if candidate.weight > 0:
            members[without_length(candidate.job)].append(candidate)
    left: Counter[str] = Counter()
    groups = []
    for job, like in members.items():
        kept = _inliers(like)
        if len(kept) < len(like):
            left[OUTLIER] += len(like) - len(kept)
        if all(c.kind is StepEvidence.LOWER_BOUND for c in kept):
            left[ONLY_BOUNDS] += len(kept)
        else:
            groups.append(_group(job, like, kept))
    return RunGroups(tuple(groups), left)


def without_length(job: TrainingJob) -> TrainingJob:
    """The job whatever its length, which its step time does not depend on."""
    return job.but(steps=None, epochs=None, dataset_size=None)


def _inliers(like: Sequence[SiteRun]) -> list[SiteRun]:
    measured = [c for c in like if c.kind is not StepEvidence.LOWER_BOUND]
    if len(measured) < MIN_LIKE:
        return list(like)
    values, weights = [log(c.step_s) for c in measured], [c.weight for c in measured]
    middle = weighted_quantile(values, weights, 0.5)
    deviation = weighted_quantile([abs(v - middle) for v in values], weights, 0.5)
    most = MAX_DEVIATIONS * max(MAD_TO_DEVIATION * deviation, LEAST_SPREAD)
    return [
        c for c in like if c.kind is StepEvidence.LOWER_BOUND or abs(log(c.step_s) - middle) <= most
    ]


def _group(job: TrainingJob, like: Sequence[SiteRun], kept: Sequence[SiteRun]) -> RunGroup:
    """The median is over outliers too: without far honest runs, liars could be more than half."""
    measured = [log(c.step_s) for c in kept if c.kind is not StepEvidence.LOWER_BOUND]
    censored = [c.kind is StepEvidence.LOWER_BOUND for c in like]
    middle = censored_median([log(c.step_s) for c in like], [c.weight for c in like], censored)
    return RunGroup(
        job=job,
        step_s=exp(middle),
        runs=len(measured),
        bounds=len(kept) - len(measured),
        users=len({c.user for c in kept}),
        spread=max(spread(measured), LEAST_SPREAD / 3) if len(measured) >= MIN_LIKE else None,
    )
