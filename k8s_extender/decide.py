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

    def filter(self, job: PodJob, names: Sequence[str]) -> FilterResult:
        """The names a job may run on; every other name with a reason."""
        kinds = self._kinds(names)
        refused = self._refused(job, kinds.values())
        passed: list[str] = []
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        for name in names:
            kind = kinds.get(name)
            why = refused.get(kind) if kind is not None else None
            if why is None:
                passed.append(name)
            else:
                (unresolvable if why.permanent else failed)[name] = why.text
        return FilterResult(passed=tuple(passed), failed=failed, unresolvable=unresolvable)

    def prioritize(self, job: PodJob, names: Sequence[str]) -> dict[str, int]:
        """A score for each name; 0 where nothing is known."""
        kinds = self._kinds(names)
        scores = self._ranking.scores(job, self.estimates(job, kinds.values()))
        return {name: scores[kinds[name]] if name in kinds else 0 for name in names}

    def acceptable(self, job: PodJob, names: Iterable[str]) -> tuple[str, ...]:
        """The names preemption may free for a job: those the filter would pass."""
        return self.filter(job, tuple(names)).passed

    def estimates(self, job: PodJob, kinds: Iterable[GpuType]) -> tuple[TypeEstimate, ...]:
        """The job on each of some GPU types."""
        return estimates(self.predictor, self.config, job, dict.fromkeys(kinds))

    def _kinds(self, names: Iterable[str]) -> dict[str, GpuType]:
        table = self.nodes()
        found: dict[str, GpuType] = {}
        for name in names:
            node = table.get(name)
            if node is not None and node.type is not None:
                found[name] = node.type
        return found

    def _refused(self, job: PodJob, kinds: Iterable[GpuType]) -> dict[GpuType, Refusal]:
        refusals = ((e.type, refusal(job, e, self.config)) for e in self.estimates(job, kinds))
        return {kind: why for kind, why in refusals if why is not None}
