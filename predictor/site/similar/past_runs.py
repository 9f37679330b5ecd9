"""Runs that ended, as the memory keeps them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field
from enum import IntEnum
from math import log

import numpy as np
from numpy.typing import NDArray

from ..ended_job import JobState
from ..history.run import Run
from .request import JobRequest, TrainingLength, digest

# Jobs of one request submitted within the same ten minutes are one batch.
BATCH_S = 600.0
LEAST_RUN_S = 1.0


class RunEnd(IntEnum):
    """What a run's time tells: all of it, until something went wrong, or a lower bound."""

    COMPLETED = 0
    STOPPED = 1
    CUT_OFF = 2


_ENDS = {
    JobState.COMPLETED: RunEnd.COMPLETED,
    JobState.FAILED: RunEnd.STOPPED,
    JobState.CANCELLED: RunEnd.STOPPED,
    JobState.OUT_OF_MEMORY: RunEnd.STOPPED,
}


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
        length = request.length or _printed_length(run)
        return cls(
            request=request,
            submit_s=job.submit_s,
            end_s=job.end_s,
            run_s=max(job.end_s - job.start_s, LEAST_RUN_S),
            ended=_ENDS.get(job.state, RunEnd.CUT_OFF),
            batch=batch_of(request, job.submit_s),
            length=length,
            rate_s=None if length is None else _rate_s(run, length.unit),
            startup_s=None if run.reported is None else run.reported.startup_s,
            predicted_s=None if run.predicted is None else run.predicted.median_s,
        )


def batch_of(request: JobRequest, submit_s: float) -> str:
    """What jobs submitted together have in common."""
    return digest(request.user, request.request_key, str(int(submit_s // BATCH_S)))


def _printed_length(run: Run) -> TrainingLength | None:
    printed, reported = run.printed, run.reported
    if printed is not None and printed.total:
        return TrainingLength(f"{printed.unit}s", printed.total)
    if reported is not None and reported.total_steps:
        return TrainingLength("steps", float(reported.total_steps))
    return None


def _rate_s(run: Run, unit: str) -> float | None:
    printed, reported = run.printed, run.reported
    if printed is not None and f"{printed.unit}s" == unit and printed.seconds_per_unit:
        return printed.seconds_per_unit
    return reported.step_s if reported is not None and unit == "steps" else None


Floats = NDArray[np.float64]
WINDOW = 32
# Of jobs submitted together, and of one user among many, the latest; the rest says the same again.
PER_BATCH, PER_USER = 8, 4
HALF_LIFE_RUNS = 20.0
# m runs submitted together weigh m**0.6: they share their luck.
BATCH_POWER = 0.6


@dataclass(frozen=True, slots=True)
class RunArrays:
    """Runs as arrays (n,): ln seconds, ln of the limit (NaN unknown), how it ended and weight."""

    ln_run: Floats
    ln_limit: Floats
    ended: NDArray[np.int64]
    weight: Floats


@dataclass(slots=True)
class RunWindow:
    """The latest runs of one key, oldest first; ``shared`` where they are of several users."""

    shared: bool
    runs: list[PastRun] = field(default_factory=list)
    seen: int = 0
    _arrays: RunArrays | None = None

    def add(self, run: PastRun) -> None:
        """Take the newest run in, and let go of the one that says least."""
        runs, self._arrays, self.seen = self.runs, None, self.seen + 1
        batch, user = run.batch, run.request.user
        if self.shared and user:
            alike, most = [o for o in runs if o.request.user == user], PER_USER
        else:
            alike, most = [o for o in runs if o.batch == batch], PER_BATCH
        if len(alike) >= most:
            runs.remove(alike[0])
        runs.append(run)
        if len(runs) > WINDOW:
            del runs[0]

    def drop(self, which: Set[int]) -> None:
        """Let go of runs by their identity."""
        self.runs, self._arrays = [run for run in self.runs if id(run) not in which], None

    @property
    def arrays(self) -> RunArrays:
        """The runs as arrays, made once for all who ask before the next run ends."""
        if self._arrays is None:
            self._arrays = self._made()
        return self._arrays

    def _made(self) -> RunArrays:
        runs = self.runs
        batches = [run.batch for run in runs]
        size = Counter(batches)
        shared = np.array([float(size[batch]) for batch in batches]) ** (BATCH_POWER - 1)
        age = np.arange(len(runs))[::-1]
        limits = (run.request.limit_s for run in runs)
        return RunArrays(
            ln_run=np.array([log(run.run_s) for run in runs]),
            ln_limit=np.array([log(s) if s else np.nan for s in limits]),
            ended=np.array([int(run.ended) for run in runs]),
            weight=shared * 0.5 ** (age / HALF_LIFE_RUNS),
        )
