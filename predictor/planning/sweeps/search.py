"""A search: its file, what all its configurations take together, and which a budget allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf, prod
from pathlib import Path
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from ...errors import JobError, SweepError
from ...estimate.core import Predictor
from ...graphs.catalog import entry_of
from ...job.training_job import JOB_FIELDS, TrainingJob
from ...settings import Section, read_settings
from ..cost import Cost, Terms, cost_of
from ..plans import Plan, Plans

MOST_CONFIGURATIONS = 10_000
TAILS = (0.025, 0.975)  # of the interval of 95 %
# Fields that say how a training is run, not which: the Pareto set is of jobs that differ in them.
_MACHINE = ("precision", "gpu", "gpus", "gpus_per_node", "fabric", "sharding", "source")
_SPLIT = ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel")
HOW = frozenset((*_MACHINE, *_SPLIT, "virtual_stages", "sequence_parallel"))


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

    def values(self) -> Sequence[int]:
        """The numbers."""
        return range(self.first, self.last + 1, self.step)


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
                raise ValueError(
                    f"{name} is no field of a job, so it does not change the time: leave it out, "
                    f"`trials` counts what differs in it; expected one of {', '.join(JOB_FIELDS)}"
                )
            if value == []:
                raise ValueError(f"{name} has no values: expected one or more")
        return said

    @model_validator(mode="after")
    def _not_too_many(self) -> Self:
        count = prod(len(_values(values)) for values in self.vary.values())
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
    entry, size = entry_of(fields["model"]), fields.get("image_size")
    if isinstance(size, list | int):
        fields = {**fields, "image_size": entry.sized(size)}
    return TrainingJob(**{**fields, "model": entry.name})


def _values(stated: list[Any] | WholeRange) -> Sequence[Any]:
    return stated.values() if isinstance(stated, WholeRange) else stated


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptConfiguration:
    """One configuration with ``trials`` trials; costs are of a whole trial that never stops early.

    ``low`` and ``high`` are the ends of its 95 % interval. One that does not fit the memory of its
    GPU has no trials.
    """

    plan: Plan
    low: Cost
    high: Cost
    trials: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """A sum over trials: ``amount`` is money, None where a GPU has no price."""

    gpu_hours: float
    amount: float | None
    energy_j: float
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """All configurations; a trial runs ``share`` of its length, ``parallel`` of them at once."""

    configurations: tuple[SweptConfiguration, ...]
    share: float
    parallel: int

    @property
    def trials(self) -> int:
        """Trials of all configurations."""
        return sum(one.trials for one in self.configurations)

    def total(self) -> Total:
        """The median of every trial, added up."""
        return self._sum([one.plan.cost for one in self.configurations])

    def interval(self) -> tuple[Total, Total]:
        """The ends of 95 %, where every trial errs alike: their errors have one cause, the model.

        That is the widest a sum can be; independent errors would cancel out.
        """
        lows = [one.low for one in self.configurations]
        return self._sum(lows), self._sum([one.high for one in self.configurations])

    def efficient(self) -> tuple[Plan, ...]:
        """Of each training the ways to run it that none beats in time without costing more.

        The fastest of a training comes first. What does not fit is not among them.
        """
        ways: dict[tuple[object, ...], list[Plan]] = {}
        for one in self.configurations:
            job = one.plan.found.job
            if one.plan.found.memory.ok:
                training = tuple(getattr(job, name) for name in JOB_FIELDS if name not in HOW)
                ways.setdefault(training, []).append(one.plan)
        return tuple(
            plan for plans in ways.values() for plan in Plans(tuple(plans), ()).efficient()
        )

    @property
    def too_large(self) -> tuple[SweptConfiguration, ...]:
        """Configurations that do not fit the memory of their GPUs."""
        return tuple(one for one in self.configurations if not one.plan.found.memory.ok)

    def _sum(self, costs: Sequence[Cost]) -> Total:
        trials = [one.trials * self.share for one in self.configurations]
        parts = list(zip(trials, costs, strict=True))
        seconds = sum(n * c.seconds for n, c in parts) / self.parallel
        longest = max((c.seconds for n, c in parts if n), default=0.0)
        amounts = [None if c.amount is None else n * c.amount for n, c in parts]
        return Total(
            gpu_hours=sum(n * c.gpu_hours for n, c in parts),
            amount=None if None in amounts else sum(a for a in amounts if a is not None),
            energy_j=sum(n * c.energy.energy_j for n, c in parts),
            elapsed_s=max(seconds, longest),
        )


def search_of(model: Predictor, space: Space, terms: Terms) -> Search:
    """The whole search, predicted; raises JobError for a job without a length.

    Configurations that do not fit the memory of their GPUs are in it, without trials.
    """
    low, high = TAILS
    jobs = space.jobs()
    for source in {job.source for job in jobs}:
        model.check_source(source)
    configurations = (
        SweptConfiguration(
            plan=Plan(one, cost_of(one, terms)),
            low=cost_of(one, terms, low),
            high=cost_of(one, terms, high),
            trials=space.trials if one.memory.ok else 0,
        )
        for one in model.predict_many(jobs)
    )
    return Search(configurations=tuple(configurations), share=space.share, parallel=space.parallel)


def within(search: Search, *, gpu_hours: float | None, budget: float | None) -> Search:
    """The most trials whose medians keep to both: those of the cheapest configurations.

    A configuration without a price is outside of any ``budget``.
    """

    def needs(one: SweptConfiguration) -> tuple[float, float]:
        """Money, where there is a budget of it, and GPU-hours of one trial."""
        cost = one.plan.cost
        amount = inf if cost.amount is None else cost.amount
        return 0.0 if budget is None else amount * search.share, cost.gpu_hours * search.share

    left = [inf if bound is None else bound for bound in (budget, gpu_hours)]
    kept = {}
    for one in sorted(search.configurations, key=needs):
        most = one.trials
        for each, bound in zip(needs(one), left, strict=True):
            if each == inf:
                most = 0
            elif bound < inf and each > 0:
                most = min(most, int(bound / each))
        kept[id(one)] = most
        if most:
            left = [bound - most * each for each, bound in zip(needs(one), left, strict=True)]
    return replace(
        search, configurations=tuple(replace(c, trials=kept[id(c)]) for c in search.configurations)
    )
