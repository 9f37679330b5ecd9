"""Filter, prioritize and preempt: from a pod and node names to the scheduler's answer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from predictor.estimate.core import Predictor
from predictor.identify.rules import Rules

from .config import Config
from .estimate import TypeEstimate, estimates
from .rank import Ranking
from .records import FilterResult, GpuType, NodeRefusal, PodJob
from .refuse import refusal
from .type_index import HostScores, NodeTable, TypeCode, TypeIndex

# Resources that pods ask for: whole GPUs and kinds of slices.
MAX_RESOURCES = 16
MAX_JOBS = 64


@dataclass(frozen=True, slots=True)
class _JobAnswers:
    """What was found out of a job, which pods that are alike share, by GPU type."""

    job: PodJob  # kept alive, as it counts by identity
    estimates: dict[GpuType, TypeEstimate] = field(default_factory=dict)
    refusals: dict[GpuType, NodeRefusal | None] = field(default_factory=dict)
    scores: dict[frozenset[GpuType], Mapping[GpuType, int]] = field(default_factory=dict)


class Decider:
    """Decides for pods by one configuration; ``nodes`` gives the newest table of nodes.

    A name that the table does not hold passes the filter and gets no score: it may be younger
    than the table. One prediction is made for each GPU type, not for each node; ``predicted``
    hears of each. ``version`` is the predictor's.
    """

    def __init__(
        self,
        predictor: Predictor,
        config: Config,
        nodes: Callable[[], NodeTable],
        *,
        rules: Rules | None = None,
        version: str = "",
        predicted: Callable[[TypeEstimate], None] = lambda estimate: None,
    ) -> None:
        self.predictor = predictor
        self.config = config
        self.nodes = nodes
        self.rules = Rules() if rules is None else rules
        self.version = version
        self._predicted = predicted
        self._ranking = Ranking(predictor, config)
        self._indices: dict[str, TypeIndex] = {}
        self._answers: OrderedDict[int, _JobAnswers] = OrderedDict()

    def filter(
        self, job: PodJob, names: Sequence[str], nodes: NodeTable | None = None
    ) -> FilterResult:
        """The names a job may run on, by the table or ``nodes``; every other one with a reason."""
        index, codes = self._found(job, names, nodes)
        refusals = self._refusals(job, index, set(codes))
        if not refusals:
            return FilterResult(names)
        pairs = list(zip(names, codes, strict=True))
        return FilterResult(
            [name for name, code in pairs if code not in refusals],
            {name: refusals[code] for name, code in pairs if code in refusals},
        )

    def prioritize(
        self, job: PodJob, names: Sequence[str], nodes: NodeTable | None = None
    ) -> HostScores:
        """A score for each name; 0 where nothing is known."""
        index, codes = self._found(job, names, nodes)
        by_type = self.scores(job, (index.types[code] for code in {*codes} if code is not None))
        return index.host_scores(tuple(by_type.get(kind, 0) for kind in index.types))

    def types(self, job: PodJob, names: Sequence[str]) -> tuple[GpuType, ...]:
        """The GPU types that differ among nodes of the table."""
        index, codes = self._found(job, names, None)
        return tuple(index.types[code] for code in {*codes} if code is not None)

    def estimates(self, job: PodJob, kinds: Iterable[GpuType]) -> tuple[TypeEstimate, ...]:
        """The job on each of some GPU types."""
        known, distinct = self._known(job).estimates, dict.fromkeys(kinds)
        new = [kind for kind in distinct if kind not in known]
        for estimate in estimates(self.predictor, self.config, job, new):
            known[estimate.type] = estimate
            self._predicted(estimate)
        return tuple(known[kind] for kind in distinct)

    def scores(self, job: PodJob, kinds: Iterable[GpuType]) -> Mapping[GpuType, int]:
        """How the types rank among each other."""
        known, present = self._known(job).scores, frozenset(kinds)
        if present not in known:
            known[present] = self._ranking.scores(job, self.estimates(job, present))
        return known[present]

    def _refusals(
        self, job: PodJob, index: TypeIndex, present: set[TypeCode]
    ) -> Mapping[TypeCode, str]:
        """Why some of the types that are present are refused."""
        known = self._known(job).refusals
        kinds = {code: kind for code, kind in enumerate(index.types) if code in present}
        new = [kind for kind in kinds.values() if kind not in known]
        for estimate in self.estimates(job, new):
            known[estimate.type] = refusal(job, estimate, self.config)
        found = ((code, known[kind]) for code, kind in kinds.items())
        return {code: why.text for code, why in found if why is not None}

    def _found(
        self, job: PodJob, names: Sequence[str], nodes: NodeTable | None
    ) -> tuple[TypeIndex, list[TypeCode]]:
        index = self._index(job.resource) if nodes is None else TypeIndex(nodes, job.resource)
        return index, index.codes(names)

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

    def _known(self, job: PodJob) -> _JobAnswers:
        known = self._answers.get(id(job))
        if known is None:
            known = self._answers[id(job)] = _JobAnswers(job)
            if len(self._answers) > MAX_JOBS:
                self._answers.popitem(last=False)
        self._answers.move_to_end(id(job))
        return known
