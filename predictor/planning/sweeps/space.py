"""The file of a search: the job, what varies in it, how many trials, and when they stop early."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from ...errors import JobError, SweepError
from ...graphs.catalog import entry_of
from ...job.training_job import JOB_FIELDS, TrainingJob
from ...settings import Section, read_settings

MOST_CONFIGURATIONS = 10_000


class Halving(Section):
    """Successive halving (Jamieson and Talwalkar, 2016).

    All trials run ``min_share`` of their length, the best ``1 / factor`` of them ``factor`` times
    as far, and so on to the end.
    """

    min_share: float = Field(gt=0, le=1)
    factor: float = Field(default=3, gt=1)

    def mean_share(self, trials: int) -> float:
        """Share of its length that a trial of so many runs on average."""
        reached, alive, work = 0.0, float(trials), 0.0
        share = self.min_share
        while reached < 1:
            share = min(1.0, share)
            work += alive * (share - reached)
            reached, share, alive = share, share * self.factor, max(1.0, alive // self.factor)
        return work / trials


class WholeRange(Section):
    """Whole numbers from ``first`` to ``last``, both included."""

    first: int
    last: int
    step: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.last < self.first:
            raise ValueError(f"last={self.last} is below first={self.first}")
        return self

    def values(self) -> list[int]:
        """The numbers."""
        return list(range(self.first, self.last + 1, self.step))


class Space(Section):
    """A search.

    ``job`` are fields of TrainingJob, ``vary`` fields of it with all their values: each
    combination is a configuration. ``trials`` is how many trials each gets, which differ in what
    changes no time (learning rate, seed); ``parallel`` how many run at once.
    """

    job: dict[str, Any]
    vary: dict[str, list[Any] | WholeRange] = Field(default_factory=dict)
    trials: int = Field(default=1, ge=1)
    parallel: int = Field(default=1, ge=1)
    stopping: Halving | None = None

    @field_validator("job", "vary")
    @classmethod
    def _fields(cls, said: dict[str, Any]) -> dict[str, Any]:
        for name, value in said.items():
            if name not in JOB_FIELDS:
                raise ValueError(f"{name} is not a field of a job; {', '.join(JOB_FIELDS)} are")
            if value == []:
                raise ValueError(f"{name} has no values: expected one or more")
        return said

    @model_validator(mode="after")
    def _not_too_many(self) -> Self:
        count = 1
        for values in self.vary.values():
            count *= len(_values(values))
        if count > MOST_CONFIGURATIONS:
            raise ValueError(f"{count} configurations: expected up to {MOST_CONFIGURATIONS}")
        return self

    @property
    def share(self) -> float:
        """Mean share of its length that a trial runs."""
        if self.stopping is None:
            return 1.0
        return self.stopping.mean_share(self.trials * len(self.jobs()))

    def jobs(self) -> list[TrainingJob]:
        """A job for every configuration, the last field of ``vary`` varying fastest.

        Raises JobError for an impossible one.
        """
        names, values = list(self.vary), [_values(v) for v in self.vary.values()]
        return [
            job_of({**self.job, **dict(zip(names, chosen, strict=True))})
            for chosen in product(*values)
        ]


def read_space(path: Path) -> Space:
    """The search of a file; raises SweepError naming file, field, value and what is expected."""
    return read_settings(path, Space, SweepError)


def job_of(fields: dict[str, Any]) -> TrainingJob:
    """The job of plain values; raises JobError for a missing or impossible field."""
    for name in ("model", "gpu", "precision"):
        if not isinstance(fields.get(name), str):
            raise JobError(name, fields.get(name), "a name is needed, in job or in vary")
    size = fields.get("image_size")
    if isinstance(size, list):
        fields = {**fields, "image_size": tuple(size)}
    return TrainingJob(**{**fields, "model": entry_of(fields["model"]).name})


def _values(stated: list[Any] | WholeRange) -> list[Any]:
    return stated.values() if isinstance(stated, WholeRange) else stated
