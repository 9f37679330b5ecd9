"""Filter, prioritize and preempt: from a pod and node names to the scheduler's answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from predictor.core import Predictor

from .config import Config
from .estimate import TypeEstimate, estimates
from .rank import Ranking
from .records import FilterResult, GpuNode, GpuType, PodJob, Refusal
from .refuse import refusal

NodeTable = Mapping[str, GpuNode]


class Decider:
    """Decides for pods; ``nodes`` gives the newest table of nodes.

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

    def filter(
        self, job: PodJob, names: Sequence[str], nodes: NodeTable | None = None
    ) -> FilterResult:
        """The names a job may run on, by the table or ``nodes``; every other one with a reason."""
        kinds = self._kinds(job, names, nodes)
        refused = self._refused(job, _distinct(kinds.values()))
        passed: list[str] = []
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        for name in names:
            kind = kinds.get(name)
            why = refused.get(id(kind))
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
        distinct = _distinct(kinds.values())
        scores = self._ranking.scores(job, self.estimates(job, distinct))
        by_id = {id(kind): scores[kind] for kind in distinct}
        return {name: by_id.get(id(kinds.get(name)), 0) for name in names}

    def acceptable(self, job: PodJob, names: Iterable[str]) -> tuple[str, ...]:
        """The names preemption may free for a job: those the filter would pass."""
        return self.filter(job, tuple(names)).passed

    def estimates(self, job: PodJob, kinds: Iterable[GpuType]) -> tuple[TypeEstimate, ...]:
        """The job on each of some GPU types."""
        return estimates(self.predictor, self.config, job, dict.fromkeys(kinds))

    def _kinds(
        self, job: PodJob, names: Iterable[str], nodes: NodeTable | None
    ) -> dict[str, GpuType]:
        table = self.nodes() if nodes is None else nodes
        found: dict[str, GpuType] = {}
        for name in names:
            node = table.get(name)
            kind = None if node is None else node.type_for(job.resource)
            if kind is not None:
                found[name] = kind
        return found

    def _refused(self, job: PodJob, kinds: Iterable[GpuType]) -> dict[int, Refusal]:
        found = {e.type: refusal(job, e, self.config) for e in self.estimates(job, kinds)}
        return {id(kind): why for kind in kinds if (why := found[kind]) is not None}


def _distinct(kinds: Iterable[GpuType]) -> tuple[GpuType, ...]:
    """The objects among the types: to compare thousands of equal ones would take milliseconds."""
    return tuple({id(kind): kind for kind in kinds}.values())
