"""Filter, prioritize and preempt: from a pod and node names to the scheduler's answer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from predictor.estimate.core import Predictor
from predictor.identify.rules import Rules

from .config import Config
from .estimate import SiteEstimates, TypeEstimate, estimates
from .rank import Ranking, Steps, refusal, unsupported
from .records import FilterResult, GpuType, NodeRefusal, PodJob
from .selectors import candidates
from .type_index import HostScores, NodeTable, TypeCode, TypeIndex

# Resources that pods ask for: whole GPUs and kinds of slices.
MAX_RESOURCES = 16
MAX_JOBS = 64


@dataclass(slots=True)
class _JobAnswers:
    """What was found out of a job, which pods that are alike share, by GPU type."""

    job: PodJob  # kept alive, as it counts by identity
    estimates: dict[GpuType, TypeEstimate] = field(default_factory=dict)
    refusals: dict[GpuType, NodeRefusal | None] = field(default_factory=dict)
    steps: dict[tuple[object, object], Steps] = field(default_factory=dict)
    table: NodeTable | None = None
    places: tuple[GpuType, ...] = ()  # where the nodes of the table could take it


class Decider:
    """Decides for pods by one configuration; ``nodes`` gives the newest table of nodes.

    A name that the table does not hold passes the filter and gets no score: it may be younger
    than the table. One prediction is made for each GPU type, not for each node; ``predicted``
    hears of each. ``version`` is the predictor's, ``site`` what similar runs tell.
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
        site: SiteEstimates | None = None,
    ) -> None:
        self.predictor = predictor
        self.config = config
        self.nodes = nodes
        self.rules = Rules() if rules is None else rules
        self.version = version
        self.site = site
        self.waiting: Sequence[PodJob] = ()  # under `placement.balance`, jobs that found no node
        self._predicted = predicted
        self._ranking = Ranking(predictor, config)
        self._table: NodeTable = {}
        self._indices: dict[str, TypeIndex] = {}
        self._answers: OrderedDict[int, _JobAnswers] = OrderedDict()

    def filter(
        self, job: PodJob, names: Sequence[str], nodes: NodeTable | None = None
    ) -> FilterResult:
        """The names a job may run on, by the table or ``nodes``; every other one with a reason.

        None is refused where no other node of the cluster could ever take the job.
        """
        index, codes = self._found(job, names, nodes)
        refusals = self._refusals(job, index, set(codes)) if job.annotated else {}
        if not refusals or not self._elsewhere(job):
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
        by_type = self.scores(
            job, (index.types[code] for code in {*codes} if code is not None), index
        )
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

    def steps(self, job: PodJob, kinds: Iterable[GpuType], index: TypeIndex | None = None) -> Steps:
        """The types from best to worst, those alike together."""
        index = self._index(job.resource) if index is None else index
        known, room = self._known(job).steps, {kind: index.room(kind) for kind in kinds}
        wanted = self._wanted(job, room) if self.waiting else frozenset[GpuType]()
        present = (frozenset(room.items()), wanted)
        if present not in known:
            found = self.estimates(job, room)
            known[present] = self._ranking.steps(job, found, room.__getitem__, wanted)
        return known[present]

    def _wanted(self, job: PodJob, kinds: Iterable[GpuType]) -> frozenset[GpuType]:
        """The types that waiting jobs need which have fewer to choose from."""
        mine = self.able(job, kinds)
        others = (
            self.able(j, candidates(j, self.nodes(), self.config.hardware).types)
            for j in self.waiting
        )
        return frozenset().union(*(theirs for theirs in others if theirs < mine))

    def able(self, job: PodJob, kinds: Iterable[GpuType]) -> frozenset[GpuType]:
        """The types that run a job, as far as is known."""
        found = self.estimates(job, kinds)
        return frozenset(e.type for e in found if e.fits and unsupported(job, e.type) is None)

    def scores(
        self, job: PodJob, kinds: Iterable[GpuType], index: TypeIndex | None = None
    ) -> Mapping[GpuType, int]:
        """The steps as whole numbers, evenly from ``max_score`` down; 0 without a prediction."""
        steps, most = self.steps(job, kinds, index), self.config.prioritize.max_score
        return {
            kind: max(1, round(most * (len(steps) - place) / len(steps)))
            for place, step in enumerate(steps)
            for kind in step
        }

    def _elsewhere(self, job: PodJob) -> bool:
        """Whether the cluster has a node for a job that is not refused."""
        known, table = self._known(job), self.nodes()
        if known.table is not table:
            found = candidates(job, table, self.config.hardware)
            known.table, known.places = table, found.types if found.certain else ()
        return None in self._refused(job, known.places)

    def _refusals(
        self, job: PodJob, index: TypeIndex, present: set[TypeCode]
    ) -> Mapping[TypeCode, str]:
        """Why some of the types that are present are refused."""
        codes = [code for code in present if code is not None]
        found = self._refused(job, [index.types[code] for code in codes])
        pairs = zip(codes, found, strict=True)
        return {code: why.text for code, why in pairs if why is not None}

    def _refused(self, job: PodJob, kinds: Sequence[GpuType]) -> list[NodeRefusal | None]:
        """Why each type is refused, None for one that is not."""
        known = self._known(job).refusals
        for estimate in self.estimates(job, [kind for kind in kinds if kind not in known]):
            known[estimate.type] = refusal(job, estimate, self.config)
        return [known[kind] for kind in kinds]

    def _found(
        self, job: PodJob, names: Sequence[str], nodes: NodeTable | None
    ) -> tuple[TypeIndex, list[TypeCode]]:
        index = self._index(job.resource) if nodes is None else TypeIndex(nodes, job.resource)
        return index, index.codes(names)

    def _index(self, resource: str) -> TypeIndex:
        table = self.nodes()
        if self._table is not table or len(self._indices) > MAX_RESOURCES:
            self._table, self._indices = table, {}
        if resource not in self._indices:
            self._indices[resource] = TypeIndex(table, resource)
        return self._indices[resource]

    def _known(self, job: PodJob) -> _JobAnswers:
        known = self._answers.get(id(job))
        if known is None:
            known = self._answers[id(job)] = _JobAnswers(job)
            if len(self._answers) > MAX_JOBS:
                self._answers.popitem(last=False)
        self._answers.move_to_end(id(job))
        return known
