"""What the configurations of a search take together, and which of them a budget allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...estimate.core import Predictor
from ...estimate.fits import Fit
from ...job.training_job import JOB_FIELDS
from ..cost import Cost, Terms, cost_of
from ..plans import Plan, Plans
from .space import Space

TAILS = (0.025, 0.975)  # of the interval of 95 %
# Fields that say how a training is run, not which: the Pareto set is of jobs that differ in them.
HOW = frozenset(
    (
        "precision",
        "gpu",
        "gpus",
        "gpus_per_node",
        "fabric",
        "sharding",
        "tensor_parallel",
        "pipeline_parallel",
        "context_parallel",
        "expert_parallel",
        "virtual_stages",
        "sequence_parallel",
        "source",
    )
)


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

    @property
    def fit(self) -> Fit:
        """Its memory, and what would make it fit."""
        return self.plan.found.memory

    @property
    def training(self) -> tuple[object, ...]:
        """What it trains, however it is run."""
        return tuple(getattr(self.plan.found.job, n) for n in JOB_FIELDS if n not in HOW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """A sum over trials: ``amount`` is money, None where a GPU has no price."""

    gpu_hours: float
    amount: float | None
    energy_j: float
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; GPU-hours, currency, joules, seconds."""
        return {
            "gpu_hours": self.gpu_hours,
            "amount": self.amount,
            "energy_j": self.energy_j,
            "elapsed_s": self.seconds,
        }


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
            if one.fit.ok:
                ways.setdefault(one.training, []).append(one.plan)
        return tuple(
            plan for plans in ways.values() for plan in Plans(tuple(plans), ()).efficient()
        )

    @property
    def too_large(self) -> tuple[SweptConfiguration, ...]:
        """Configurations that do not fit the memory of their GPUs."""
        return tuple(one for one in self.configurations if not one.fit.ok)

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
            seconds=max(seconds, longest),
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
            plan=Plan(found, cost_of(found, terms)),
            low=cost_of(found, terms, low),
            high=cost_of(found, terms, high),
            trials=space.trials if found.memory.ok else 0,
        )
        for found in model.predict_many(jobs)
    )
    return Search(configurations=tuple(configurations), share=space.share, parallel=space.parallel)


def within(search: Search, *, gpu_hours: float | None, budget: float | None) -> Search:
    """The most trials whose medians keep to both: those of the cheapest configurations.

    A configuration without a price is outside of any ``budget``.
    """
    kept = {id(one): 0 for one in search.configurations}
    hours_left, money_left = (float("inf") if b is None else b for b in (gpu_hours, budget))
    by_price = sorted(search.configurations, key=lambda one: _price(one, budget is not None))
    for one in by_price:
        hours = one.plan.cost.gpu_hours * search.share
        money = _price(one, True) * search.share if budget is not None else 0.0
        most = min(one.trials, _fitting(hours, hours_left), _fitting(money, money_left))
        kept[id(one)] = most
        if most:
            hours_left, money_left = hours_left - most * hours, money_left - most * money
    return Search(
        configurations=tuple(
            SweptConfiguration(plan=c.plan, low=c.low, high=c.high, trials=kept[id(c)])
            for c in search.configurations
        ),
        share=search.share,
        parallel=search.parallel,
    )


def _price(one: SweptConfiguration, money: bool) -> float:
    cost = one.plan.cost
    if not money:
        return cost.gpu_hours
    return float("inf") if cost.amount is None else cost.amount


def _fitting(each: float, left: float) -> int:
    """How many fit; all of them where there is no bound."""
    if each == float("inf"):
        return 0
    return 10**12 if left == float("inf") or each <= 0 else int(left / each)
