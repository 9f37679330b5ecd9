"""The runs of a history as observations: what each took, and what had been said of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import log

from ...errors import GraphError, JobError
from ...estimate.core import Predictor
from ...job.training_job import SITE_PREFIX, TrainingJob
from ..calibration.run_groups import without_length
from ..calibration.run_reader import RunReader, SiteRun, StepEvidence
from ..history.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStream:
    """Runs of a framework and GPU on a cluster; of one model, or of all where it is None."""

    cluster: str
    framework: str
    gpu: str
    model: str | None = None

    @classmethod
    def of(cls, job: TrainingJob) -> RunStream:
        """The stream of the model of a job."""
        cluster = job.source.removeprefix(SITE_PREFIX)
        return cls(cluster=cluster, framework=job.framework, gpu=job.gpu, model=job.model)

    @property
    def all_models(self) -> RunStream:
        """The same stack and GPU, whatever the model."""
        return replace(self, model=None)

    @property
    def where(self) -> str:
        """For people, after "on"."""
        cluster = f"{self.cluster}: " if self.cluster else ""
        model = f", {self.model}" if self.model else ""
        return f"{cluster}{self.gpu}, {self.framework}{model}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A measured run: ``step_s`` seconds of a step, ended at ``end_s`` in Unix seconds.

    With ``lower_bound`` it hit its limit first, and the truth is longer. ``error`` is ln(measured
    / predicted) and ``inside`` whether the 95 % interval held it, None where nothing is known;
    ``version`` is the predictor that said it.
    """

    end_s: float
    user: str
    job: TrainingJob
    step_s: float
    lower_bound: bool = False
    error: float | None = None
    inside: bool | None = None
    version: str | None = None

    @property
    def streams(self) -> Iterator[RunStream]:
        """The streams it belongs to."""
        own = RunStream.of(self.job)
        yield own.all_models
        yield own

    @property
    def like(self) -> tuple[str, TrainingJob]:
        """What it has in common with runs that should take the same: user and configuration."""
        return self.user, without_length(self.job)


LEVEL = 0.95

Load = Callable[[str], Predictor | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PastPrediction:
    """A prediction of one step in seconds; the interval is None where nobody can tell it now."""

    step_s: float
    low_s: float | None
    high_s: float | None
    version: str | None


class AtSubmit:
    """What was said before the job ran, with the interval of the version that said it.

    ``load`` gives a stored version, None for one that is no longer there.
    """

    def __init__(self, load: Load) -> None:
        self._predictor = lru_cache(maxsize=None)(load)

    def __call__(self, run: Run, job: TrainingJob) -> PastPrediction | None:
        """None where nothing was said, or of another GPU or number of them than it ran on."""
        said = run.predicted
        if said is None or not said.step_s or said.step_s <= 0:
            return None
        if said.gpus not in (None, job.gpus) or not _same_gpu(said.gpu, job):
            return None
        predictor = self._predictor(said.version) if said.version else None
        low, high = (None, None) if predictor is None else _around(said.step_s, predictor, job)
        return PastPrediction(step_s=said.step_s, low_s=low, high_s=high, version=said.version)


def _around(
    step_s: float, predictor: Predictor, job: TrainingJob
) -> tuple[float | None, float | None]:
    """The interval that a predictor puts around its step time, moved to what was said."""
    try:
        found = predictor.predict(job)
    except (GraphError, JobError):
        return None, None
    interval = found.interval(LEVEL)
    return step_s * interval.low_s / found.step_s, step_s * interval.high_s / found.step_s


def observations(
    runs: Iterable[Run],
    candidates: RunReader,
    said: AtSubmit,
    left: Counter[str],
) -> Iterator[Observation]:
    """One for every run that tells a step time; ``left`` counts the others by reason."""
    for run in runs:
        found = candidates.of(run)
        if isinstance(found, str):
            left[found] += 1
        else:
            yield _observation(found, said(run, found.job))


def _observation(candidate: SiteRun, said: PastPrediction | None) -> Observation:
    measured_s, bound = candidate.step_s, candidate.kind is StepEvidence.LOWER_BOUND
    inside = None
    if said is not None and said.low_s is not None and said.high_s is not None and not bound:
        inside = said.low_s <= measured_s <= said.high_s
    return Observation(
        end_s=candidate.run.ended.end_s,
        user=candidate.user,
        job=candidate.job,
        step_s=measured_s,
        lower_bound=bound,
        error=None if said is None or bound else log(measured_s / said.step_s),
        inside=inside,
        version=None if said is None else said.version,
    )


def _same_gpu(name: str | None, job: TrainingJob) -> bool:
    if name is None or name == job.gpu:
        return True
    try:
        return job.but(gpu=name).gpu == job.gpu
    except JobError:
        return False
