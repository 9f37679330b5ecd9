"""Filter, prioritize and preempt: from a pod and node names to the scheduler's answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat

from predictor.core import Predictor

from .config import Config
from .estimate import TypeEstimate, estimates
from .rank import Ranking
from .records import FilterResult, GpuNode, GpuType, PodJob, Refusal
from .refuse import refusal

NodeTable = Mapping[str, GpuNode]


@dataclass(frozen=True, slots=True)
class _Types:
    """What a pod that asks for a resource gets on each node of a table."""

    table: NodeTable = field(default_factory=dict)
    resource: str = ""
    by_name: Mapping[str, GpuType] = field(default_factory=dict)


class Decider:
    """Decides for pods; ``nodes`` gives the newest table of nodes, which itself never changes.

    A name that the table does not hold passes the filter and gets no score: it may be younger
    than the table. One prediction is made for each GPU type, not for each node.
    """

    def __init__(
        self, predictor: Predictor, config: Config, nodes: Callable[[], NodeTable]
    ) -> None:
        self.predictor = predictor
        self.config = config
        self.nodes = nodes
        self._ranking = Ranking(predictor, config)
        self._newest = _Types()

    def filter(
        self, job: PodJob, names: Sequence[str], nodes: NodeTable | None = None
    ) -> FilterResult:
        """The names a job may run on, by the table or ``nodes``; every other one with a reason."""
        kinds = self._kinds(job, names, nodes)
        refused = self._refused(job, _distinct(kinds))
        if not refused:
            return FilterResult(passed=tuple(names))
        passed: list[str] = []
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        for name, why in zip(names, map(refused.get, map(id, kinds)), strict=True):
            if why is None:
                passed.append(name)
            else:
                (unresolvable if why.permanent else failed)[name] = why.text
        return FilterResult(passed=tuple(passed), failed=failed, unresolvable=unresolvable)

    def prioritize(
        self, job: PodJob, names: Sequence[str], nodes: NodeTable | None = None
    ) -> dict[str, int]:
        """A score for each name; 0 where nothing is known."""
        kinds = self._kinds(job, names, nodes)
        distinct = _distinct(kinds)
        scores = self._ranking.scores(job, self.estimates(job, distinct))
        by_id = {id(kind): scores[kind] for kind in distinct}
        return dict(zip(names, map(by_id.get, map(id, kinds), repeat(0)), strict=True))

    def acceptable(self, job: PodJob, names: Iterable[str]) -> tuple[str, ...]:
        """The names preemption may free for a job: those the filter would pass."""
        return self.filter(job, tuple(names)).passed

    def estimates(self, job: PodJob, kinds: Iterable[GpuType]) -> tuple[TypeEstimate, ...]:
        """The job on each of some GPU types."""
        return estimates(self.predictor, self.config, job, dict.fromkeys(kinds))

    def _kinds(
        self, job: PodJob, names: Iterable[str], nodes: NodeTable | None
    ) -> list[GpuType | None]:
        """What a job gets on each node, None where nothing is known of it."""
        if nodes is not None:
            return list(map(_types(nodes, job.resource).by_name.get, names))
        table = self.nodes()
        if self._newest.table is not table or self._newest.resource != job.resource:
            self._newest = _types(table, job.resource)
        return list(map(self._newest.by_name.get, names))

    def _refused(self, job: PodJob, kinds: Iterable[GpuType]) -> dict[int, Refusal]:
        found = {e.type: refusal(job, e, self.config) for e in self.estimates(job, kinds)}
        return {id(kind): why for kind in kinds if (why := found[kind]) is not None}


def _types(table: NodeTable, resource: str) -> _Types:
    found = ((name, node.type_for(resource)) for name, node in table.items())
    return _Types(table, resource, {name: kind for name, kind in found if kind is not None})


def _distinct(kinds: Sequence[GpuType | None]) -> tuple[GpuType, ...]:
    """The objects among the types: to compare thousands of equal ones would take milliseconds."""
    return tuple(
        kind for kind in dict(zip(map(id, kinds), kinds, strict=True)).values() if kind is not None
    )
