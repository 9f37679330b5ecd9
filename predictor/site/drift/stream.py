"""Which runs are watched together: those of one stack on one GPU, all and by model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...job.training_job import SITE_PREFIX, TrainingJob
from ..calibration.run_groups import without_length


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
