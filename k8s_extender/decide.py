"""Filter, prioritize and preempt: from a pod and node names to the scheduler's answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from predictor.estimate.core import Predictor

from .config import Config
from .estimate import TypeEstimate, estimates
from .rank import Ranking
from .records import FilterResult, GpuType, PodJob, Refusal
from .refuse import refusal
from .type_index import Code, NodeTable, TypeIndex
from .wire import HostScores

__all__ = ["Decider", "NodeTable"]

# Resources that pods ask for: whole GPUs and kinds of slices.
MAX_RESOURCES = 16


@dataclass(frozen=True, slots=True)
class _Found:
    """What a list of names came to; ``present`` are the codes of types among them."""

    names: Sequence[str]
    index: TypeIndex
    present: frozenset[int]


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
        self._indices: dict[str, TypeIndex] = {}
        self._last: _Found | None = None

    def filter(
        self, job: PodJob, names: Sequence[str], nodes: NodeTable | None = None
    ) -> FilterResult:
        """The names a job may run on, by the table or ``nodes``; every other one with a reason."""
        found = self._found(job, names, nodes)
        refused = self.refusals(job, found.index, found.present)
        if not refused:
            return FilterResult(names)
        texts = {code: why.text for code, why in refused.items()}
        pairs = list(zip(names, found.index.codes(names), strict=True))
        return FilterResult(
            [name for name, code in pairs if code not in texts],
            {name: texts[code] for name, code in pairs if code in texts},
        )

    def prioritize(
        self, job: PodJob, names: Sequence[str], nodes: NodeTable | None = None
    ) -> dict[str, int]:
        """A score for each name; 0 where nothing is known."""
        found = self._found(job, names, nodes)
        scores = self.scores(job, found.index, found.present)
        codes = found.index.codes(names)
        return {name: scores.get(code, 0) for name, code in zip(names, codes, strict=True)}

    def host_scores(
        self, job: PodJob, names: Sequence[str], nodes: NodeTable | None = None
    ) -> HostScores:
        """The same scores, ready to be sent."""
        found = self._found(job, names, nodes)
        return found.index.host_scores(self.scores(job, found.index, found.present))

    def types(self, job: PodJob, names: Sequence[str]) -> tuple[GpuType, ...]:
        """The GPU types that differ among nodes of the table."""
        index = self._index(job.resource)
        return tuple(index.types[code] for code in index.present(names))

    def estimates(self, job: PodJob, kinds: Iterable[GpuType]) -> tuple[TypeEstimate, ...]:
        """The job on each of some GPU types."""
        return estimates(self.predictor, self.config, job, dict.fromkeys(kinds))

    def refusals(
        self, job: PodJob, index: TypeIndex, present: frozenset[int]
    ) -> Mapping[Code, Refusal]:
        """Why some of the types that are present are refused."""
        codes = sorted(present)
        found = self.estimates(job, [index.types[code] for code in codes])
        told = ((code, refusal(job, e, self.config)) for code, e in zip(codes, found, strict=True))
        return {code: why for code, why in told if why is not None}

    def scores(self, job: PodJob, index: TypeIndex, present: frozenset[int]) -> Mapping[Code, int]:
        """The scores of the types that are present."""
        kinds = [index.types[code] for code in sorted(present)]
        by_type = self._ranking.scores(job, self.estimates(job, kinds))
        return {code: by_type[index.types[code]] for code in present}

    def _found(self, job: PodJob, names: Sequence[str], nodes: NodeTable | None) -> _Found:
        """What names come to; the same list, asked about again, is not gone through again."""
        index = self._index(job.resource) if nodes is None else TypeIndex(nodes, job.resource)
        last = self._last
        if last is not None and last.names is names and last.index is index:
            return last
        self._last = _Found(names, index, index.present(names))
        return self._last

    def _index(self, resource: str) -> TypeIndex:
        table = self.nodes()
        known = self._indices.get(resource)
        if known is None or known.table is not table:
            current = {r: index for r, index in self._indices.items() if index.table is table}
            if len(current) >= MAX_RESOURCES:
                current.clear()
            known = current[resource] = TypeIndex(table, resource)
            self._indices = current
        return known
