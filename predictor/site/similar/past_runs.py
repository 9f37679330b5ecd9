"""Runs that ended, as the memory keeps them, and how those of one script are brought to a job.

A run is a start-up and a length times a rate. Another length scales the rest by their ratio;
other hardware scales it by physics where the network is named, by what runs of both took at this
site where they were seen, else by a prior that is wide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import exp, log, sqrt
from statistics import median

import numpy as np

from ..history.run import JobState, Run
from .request import JobRequest, TrainingLength, digest
from .run_times import Floats

# Jobs of one request submitted within the same ten minutes are one batch.
BATCH_S = 600.0
LEAST_RUN_S = 1.0
# ln of the ratio of the times of one unit of length of two requests; None where not known.
LogRatio = Callable[[JobRequest, JobRequest], float | None]
# Where only run times are known a start-up is at most a share of the shortest, and a minute.
STARTUP_S, STARTUP_SHARE = 60.0, 0.2
# ln spread of a rate carried to another length, and of one from a run time with its start-up.
LENGTH_SPREAD, STARTUP_SPREAD = 0.03, 0.15
UNTOLD_SPREAD = 0.5  # of a run that tells neither its length nor its script: as long, give or take
# ln spread for each thing that differs: by physics or the site's ratios, and by the prior.
KNOWN_SPREAD = 0.15
SPREADS = (0.6, 0.0, 0.4, 0.3)  # GPU type, GPUs (see below), precision, batch size
# n times the GPUs take 1 / n**0.8 of the time, give or take half of what n says.
COUNT_POWER, COUNT_SPREAD = 0.8, 0.3
FAR = 3.0
GUESS = "assumed"
# A normal distribution by five points that are alike likely, of mean 0 and deviation 1.
_POINTS = tuple((at, 0.2) for at in (-1.397, -0.569, 0.0, 0.569, 1.397))


class RunEnd(IntEnum):
    """What a run's time tells: all of it, until something went wrong, or a lower bound."""

    COMPLETED = 0
    STOPPED = 1
    CUT_OFF = 2


_STOPPED = (JobState.FAILED, JobState.CANCELLED, JobState.OUT_OF_MEMORY)
_ENDS = {JobState.COMPLETED: RunEnd.COMPLETED, **dict.fromkeys(_STOPPED, RunEnd.STOPPED)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """One run; ``batch`` is what it was submitted together with.

    ``length`` is the whole training as the job stated or printed it, ``rate_s`` seconds per unit
    of it and ``startup_s`` seconds to its first step, where the run told them. ``predicted_s`` is
    what physics had said of all its steps.
    """

    request: JobRequest
    submit_s: float
    end_s: float
    run_s: float
    ended: RunEnd
    batch: str
    length: TrainingLength | None = None
    rate_s: float | None = None
    startup_s: float | None = None
    predicted_s: float | None = None

    @classmethod
    def of(cls, run: Run) -> PastRun | None:
        """That of a run of the history; None where it never ran."""
        job = run.ended
        if job.start_s is None or not job.submit_s <= job.start_s < job.end_s:
            return None
        request = JobRequest.of(run).without_names()
        printed, reported, length = run.printed, run.reported, request.length
        if length is None and printed is not None and printed.total:
            length = TrainingLength(f"{printed.unit}s", printed.total)
        elif length is None and reported is not None and reported.total_steps:
            length = TrainingLength("steps", float(reported.total_steps))
        rate_s = None
        if length is not None and reported is not None and length.unit == "steps":
            rate_s = reported.step_s
        if length is not None and printed is not None and f"{printed.unit}s" == length.unit:
            rate_s = printed.seconds_per_unit or rate_s
        return cls(
            request=request,
            submit_s=job.submit_s,
            end_s=job.end_s,
            run_s=max(job.end_s - job.start_s, LEAST_RUN_S),
            ended=_ENDS.get(job.state, RunEnd.CUT_OFF),
            batch=batch_of(request, job.submit_s),
            length=length,
            rate_s=rate_s,
            startup_s=None if reported is None else reported.startup_s,
            predicted_s=None if run.predicted is None else run.predicted.median_s,
        )

    @classmethod
    def cut_off(cls, asked: JobRequest, submit_s: float, start_s: float, end_s: float) -> PastRun:
        """One of which no more is known than that it ran until ``end_s``."""
        run_s, batch = max(end_s - start_s, LEAST_RUN_S), batch_of(asked, submit_s)
        cut = RunEnd.CUT_OFF
        return cls(
            request=asked, submit_s=submit_s, end_s=end_s, run_s=run_s, ended=cut, batch=batch
        )


def batch_of(request: JobRequest, submit_s: float) -> str:
    """What jobs submitted together have in common."""
    return digest(request.user, request.request_key, str(int(submit_s // BATCH_S)))


@dataclass(frozen=True, slots=True)
class ScaledRuns:
    """Runs as they would be of this job: ln seconds, share of weight and bound of each (n,).

    ``row`` is the run each value comes from, ``notes`` how they were brought here, ``assumed``
    whether any of it is a guess.
    """

    ln_s: Floats
    share: Floats
    row: np.ndarray[tuple[int], np.dtype[np.int64]]
    notes: tuple[str, ...]
    assumed: bool


def scaled_runs(
    runs: Sequence[PastRun], job: JobRequest, ratio: LogRatio, physics: LogRatio
) -> ScaledRuns:
    """Runs of one script, brought to a job; those of which that cannot be said are left out."""
    startup_s = usual_startup_s(runs)
    values: list[tuple[float, float, int]] = []
    notes, rates_s = dict[str, None](), list[float]()
    for row, run in enumerate(runs):
        hardware, spread = _hardware(run.request, job, ratio, physics, notes)
        length, rate_s = job.length, rate_of(run, startup_s)
        untold = length and not (run.length or run.request.script or run.request.command)
        own = UNTOLD_SPREAD if untold else 0.0
        if length is None or length == run.length or untold:
            if length is None and run.request.length is not None:
                continue
            ln_s = log(run.run_s) + hardware
            if untold:
                notes[f"runs that tell no length {GUESS} as long"] = None
        elif run.length is None or run.length.unit != length.unit or rate_s is None:
            continue
        else:
            told_s = run.startup_s if run.startup_s is not None else startup_s
            before_s = min(STARTUP_S, STARTUP_SHARE * run.run_s) if told_s is None else told_s
            far = max(length.amount / run.length.amount, run.length.amount / length.amount) > FAR
            unsure = far and told_s is None and run.rate_s is None
            if unsure:
                notes[f"a start-up of a minute at most {GUESS}"] = None
            rates_s.append(rate_s * exp(hardware))
            ln_s = log(before_s + rates_s[-1] * length.amount)
            own = STARTUP_SPREAD if unsure else LENGTH_SPREAD
        spread = sqrt(own**2 + spread**2)
        points = _POINTS if spread else ((0.0, 1.0),)
        values += [(ln_s + at * spread, share, row) for at, share in points]
    columns = np.array(values).reshape(-1, 3).T
    told = list(notes)
    if job.length is not None and rates_s:
        amount, unit = job.length.amount, job.length.unit
        told.insert(0, f"{median(rates_s):.3g} s per {unit[:-1]} for {amount:,.0f} {unit}")
    guessed = any(GUESS in note for note in told)
    return ScaledRuns(columns[0], columns[1], columns[2].astype(np.int64), tuple(told), guessed)


def usual_startup_s(runs: Sequence[PastRun]) -> float | None:
    """Seconds before the first step: as told, or what runs of different lengths agree on."""
    told = [run.startup_s for run in runs if run.startup_s is not None]
    if told:
        return median(told)
    done = [(r.length.amount, r.run_s, r) for r in runs if r.length and r.ended is RunEnd.COMPLETED]
    slopes = [
        (b[1] - a[1]) / (b[0] - a[0])
        for at, a in enumerate(done)
        for b in done[at + 1 :]
        if a[0] != b[0] and _alike(a[2].request, b[2].request)
    ]
    if not slopes:
        return None
    rest = median(seconds - median(slopes) * amount for amount, seconds, _ in done)
    return min(max(rest, 0.0), min(seconds for _, seconds, _ in done))


def rate_of(run: PastRun, startup_s: float | None) -> float | None:
    """Seconds per unit of its length, as it told them or as its run time gives them."""
    if run.rate_s is not None:
        return run.rate_s
    if run.length is None or run.ended is not RunEnd.COMPLETED:
        return None
    known_s = run.startup_s if run.startup_s is not None else startup_s
    if known_s is None:
        known_s = min(STARTUP_S, STARTUP_SHARE * run.run_s)
    return max(run.run_s - known_s, 1e-3 * run.run_s) / run.length.amount


def _hardware(
    ran: JobRequest, job: JobRequest, ratio: LogRatio, physics: LogRatio, notes: dict[str, None]
) -> tuple[float, float]:
    """The ln of how much longer a step takes on the GPUs of the job, and its spread."""
    if _alike(ran, job):
        return 0.0, 0.0
    both = list(zip(hardware_of(ran), hardware_of(job), strict=True))
    pairs = zip(("GPU type", "GPUs", "precision", "batch size"), both, strict=True)
    what = ", ".join(f"{name} {a} -> {b}" for name, (a, b) in pairs if _differ(a, b))
    for source, words in ((physics, "by physics"), (ratio, "as measured at this site")):
        known = source(ran, job)
        if known is not None:
            notes[f"{what}: x {exp(known):.2g} {words}"] = None
            return known, KNOWN_SPREAD
    variance = sum(s**2 * _differ(*pair) for s, pair in zip(SPREADS, both, strict=True))
    shift = 0.0
    if _differ(job.gpus, ran.gpus):
        more = log(job.gpus / ran.gpus)
        shift, variance = -COUNT_POWER * more, variance + (COUNT_SPREAD * more) ** 2
    notes[f"{what}: x {exp(shift):.2g} {GUESS}, nobody measured it here"] = None
    return shift, sqrt(variance)


def _alike(one: JobRequest, other: JobRequest) -> bool:
    return not any(map(_differ, hardware_of(one), hardware_of(other)))


def _differ(one: object, other: object) -> bool:
    """Whether both are known, and not the same."""
    return bool(one and other and one != other)


def hardware_of(job: JobRequest) -> tuple[object, ...]:
    """What the time of a step of one network depends on."""
    return job.gpu_type, job.gpus, job.precision, job.batch_size
