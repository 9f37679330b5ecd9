"""Filter, prioritize and preempt: from a pod and node names to the scheduler's answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import orjson

from predictor.estimate.core import Predictor
from predictor.identify.grammar import stated_text
from predictor.identify.rules import Rules
from predictor.site.similar.estimate import Estimate
from predictor.site.similar.request import JobRequest
from profiles.gpus import known_gpu

from .config import Config
from .nodes import SHARED, GpuNode, GpuType, gpu_node
from .plain import items, mapping, owner_of, text
from .pods import OWNER_PODS
from .rank import Ranking, SiteEstimates, Steps, TypeEstimate, able, estimated, refusal, request_of
from .workload import JobReader, PodJob

_KEEPING_OUT = frozenset(("NoSchedule", "NoExecute"))
_INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_NAME_FIELD = "metadata.name"

NodeTable = Mapping[str, GpuNode]


def selects(job: PodJob, labels: Mapping[str, str], name: str | None = None) -> bool:
    """Whether a node with these labels meets a pod's selector and required affinity.

    A requirement that the API server would not accept is met by no node. A term about the node's
    name is met by any node whose ``name`` is not told.
    """
    if any(labels.get(key) != value for key, value in job.node_selector.items()):
        return False
    if job.node_affinity is None:
        return True
    terms = job.node_affinity if isinstance(job.node_affinity, list) else []
    return any(_term(term, labels, name) for term in terms)


def _term(term: Any, labels: Mapping[str, str], name: str | None) -> bool:
    """All requirements of a term hold; a term without any holds for no node."""
    met = [_holds(one, labels) for one in items(term, "matchExpressions")]
    for one in items(term, "matchFields"):
        named = name is None or _holds(one, {_NAME_FIELD: name})
        met.append(named and text(one, "key") == _NAME_FIELD)
    return bool(met) and all(met)


def _holds(requirement: Any, labels: Mapping[str, str]) -> bool:
    operator = _OPERATORS.get(text(requirement, "operator"))
    values = [value for value in items(requirement, "values") if isinstance(value, str)]
    return operator is not None and operator(labels.get(text(requirement, "key")), values)


def _excess(found: str | None, values: list[str]) -> int:
    """A label's whole number less the only value's; 0 where they are none."""
    numbers = [found, *values]
    whole = len(values) == 1 and all(n is not None and _INTEGER.fullmatch(n) for n in numbers)
    return int(found or "") - int(values[0]) if whole else 0


_OPERATORS: Mapping[str, Callable[[str | None, list[str]], bool]] = {
    "In": lambda found, values: found in values,
    "NotIn": lambda found, values: found not in values,
    "Exists": lambda found, values: found is not None,
    "DoesNotExist": lambda found, values: found is None,
    "Gt": lambda found, values: _excess(found, values) > 0,
    "Lt": lambda found, values: _excess(found, values) < 0,
}


def _bears(job: PodJob, taint: Mapping[str, str]) -> bool:
    """Whether a pod may be placed on a node with a taint."""
    key, effect = taint.get("key", ""), taint.get("effect", "")
    if effect not in _KEEPING_OUT or key.startswith("node.kubernetes.io/"):
        return True  # of the node's health: it passes
    return any(
        text(one, "effect") in ("", effect)
        and text(one, "key") in ("", key)
        and (text(one, "operator") == "Exists" or text(one, "value") == taint.get("value", ""))
        for one in job.tolerations
    )


@dataclass(frozen=True, slots=True)
class GpuCandidates:
    """GPU types; ``certain`` is False where they are only what the user says of the GPU."""

    types: tuple[GpuType, ...]
    certain: bool = True


# Kept of one table: jobs that rank the types alike share the text.
MAX_SCORES = 8
SOME_NAMES = 512


class HostScores(dict[str, str]):
    """The JSON of each node's score, made when its name is first looked up.

    ``by_code`` are the scores of the types; a name that nothing is known of gets 0 and is not kept.
    """

    def __init__(self, codes: Mapping[str, int], by_code: Sequence[int]) -> None:
        super().__init__()
        self._codes = codes
        self._by_code = by_code

    def score(self, name: str) -> int:
        """The score of a node."""
        code = self._codes.get(name)
        return 0 if code is None else self._by_code[code]

    def __missing__(self, name: str) -> str:
        text = orjson.dumps({"Host": name, "Score": self.score(name)}).decode()
        if name in self._codes:
            self[name] = text
        return text


class TypeIndex:
    """What a pod that asks for a resource gets on each node of a table, which never changes.

    ``types`` are the GPU types that differ; the code of a type is its place among them, ``codes``
    are those of the nodes that have one. ``room`` are the GPUs of each product in the table,
    whatever runs on them.
    """

    def __init__(self, table: NodeTable, resource: str) -> None:
        kinds = {name: node.type_for(resource) for name, node in table.items()}
        distinct = {id(kind): kind for kind in kinds.values() if kind is not None}
        places: dict[GpuType, int] = {}
        codes = {i: places.setdefault(kind, len(places)) for i, kind in distinct.items()}
        self.types: tuple[GpuType, ...] = tuple(places)
        self.room = Counter[tuple[str, str | None]]()
        for kind in kinds.values():
            if kind is not None:
                self.room[kind.product, kind.mig] += kind.count * kind.replicas
        self.codes = {name: codes[id(kind)] for name, kind in kinds.items() if kind is not None}
        # The scores of the nodes, by those of their types.
        self.host_scores = lru_cache(MAX_SCORES)(partial(HostScores, self.codes))

    def types_of(self, names: Sequence[str]) -> tuple[GpuType, ...]:
        """The types that differ among some names."""
        found = {*map(self.codes.get, names[:SOME_NAMES])}
        if len(found - {None}) < len(self.types):  # mostly all are among the first of thousands
            found = {*map(self.codes.get, names)}
        return tuple(self.types[code] for code in found if code is not None)


@dataclass(frozen=True, slots=True)
class FilterResult:
    """Nodes that pass, in the order asked, and by name why the others are refused."""

    passed: Sequence[str]
    refused: Mapping[str, str] = field(default_factory=dict)


# Resources that pods ask for: whole GPUs and kinds of slices.
MAX_RESOURCES = 16
MAX_JOBS = 64


@dataclass(slots=True)
class _JobAnswers:
    """What was found out of a job, which pods that are alike share, by GPU type."""

    estimates: dict[GpuType, TypeEstimate] = field(default_factory=dict)
    refusals: dict[GpuType, str | None] = field(default_factory=dict)
    steps: dict[tuple[object, object], Steps] = field(default_factory=dict)
    table: NodeTable | None = None
    candidates: GpuCandidates = GpuCandidates(())  # by the nodes of the table


@dataclass(eq=False)
class Decider:
    """Decides for pods by one configuration; ``nodes`` gives the newest table of nodes.

    A name that the table does not hold passes the filter and gets no score: it may be younger
    than the table. One prediction is made for each GPU type, not for each node; ``predicted``
    hears of each. ``version`` is the predictor's, ``site`` what similar runs tell. ``waiting`` are
    jobs that found no node, under `placement.balance`; ``gangs`` are as `BoundPods` has them.
    """

    predictor: Predictor
    config: Config
    nodes: Callable[[], NodeTable]
    rules: Rules | None = None
    version: str = ""
    predicted: Callable[[TypeEstimate], None] = lambda estimate: None
    site: SiteEstimates | None = None
    waiting: Sequence[PodJob] = ()
    gangs: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._read = JobReader(self.config, self.rules or Rules())
        self._ranking = Ranking(self.predictor, self.config)
        self._table: NodeTable = {}
        self._indices: dict[str, TypeIndex] = {}
        self._known = lru_cache(MAX_JOBS)(lambda job: _JobAnswers())

    def job_of(self, pod: Mapping[str, Any]) -> PodJob | None:
        """The job that a pod is part of; None for one without GPUs."""
        if self.gangs and (pods := self.gangs.get(owner_of(pod).uid)):
            metadata = mapping(pod, "metadata")
            labels = {**mapping(metadata, "labels"), OWNER_PODS: str(pods)}
            pod = {**pod, "metadata": {**metadata, "labels": labels}}
        return self._read(pod)

    def filter(
        self, job: PodJob, names: Sequence[str], nodes: NodeTable | None = None
    ) -> FilterResult:
        """The names a job may run on, by the table or ``nodes``; every other one with a reason.

        None is refused where no other node of the cluster could ever take the job.
        """
        if not job.annotated:
            return FilterResult(names)
        index = self._index(job.resource, nodes)
        types = index.types_of(names)
        found = dict(zip(types, self._refused(job, types), strict=True))
        where = self.candidates(job) if any(found.values()) else None
        if not (where and where.certain and None in self._refused(job, where.types)):
            return FilterResult(names)
        reasons = dict[int | None, str | None](enumerate(map(found.get, index.types)))
        pairs = zip(names, map(reasons.get, map(index.codes.get, names)), strict=True)
        refused = {name: why for name, why in pairs if why is not None}
        return FilterResult([name for name in names if name not in refused], refused)

    def prioritize(
        self, job: PodJob, names: Sequence[str], nodes: NodeTable | None = None
    ) -> HostScores:
        """A score for each name; 0 where nothing is known."""
        index = self._index(job.resource, nodes)
        by_type = self.scores(job, index.types_of(names), index)
        return index.host_scores(tuple(by_type.get(kind, 0) for kind in index.types))

    def types(self, job: PodJob, names: Sequence[str]) -> tuple[GpuType, ...]:
        """The GPU types that differ among nodes of the table."""
        return self._index(job.resource).types_of(names)

    def estimates(self, job: PodJob, kinds: Iterable[GpuType]) -> tuple[TypeEstimate, ...]:
        """The job on each of some GPU types."""
        known, distinct = self._known(job).estimates, dict.fromkeys(kinds)
        for kind in distinct:
            if kind not in known:
                known[kind] = estimated(self.predictor, self.config, job, kind)
                self.predicted(known[kind])
        return tuple(known[kind] for kind in distinct)

    def steps(self, job: PodJob, kinds: Iterable[GpuType], index: TypeIndex | None = None) -> Steps:
        """The types from best to worst, those alike together."""
        index = self._index(job.resource) if index is None else index
        known = self._known(job).steps
        room = {kind: index.room[kind.product, kind.mig] for kind in kinds}
        mine = self.able(job, room) if self.waiting else frozenset[GpuType]()
        theirs = (self.able(one, self.candidates(one).types) for one in self.waiting)
        # What waiting jobs need that have fewer types to choose from.
        wanted = frozenset[GpuType]().union(*(types for types in theirs if types < mine))
        present = (frozenset(room.items()), wanted)
        if present not in known:
            found = self.estimates(job, room)
            known[present] = self._ranking.steps(job, found, room.__getitem__, wanted)
        return known[present]

    def candidates(self, job: PodJob) -> GpuCandidates:
        """The types of the nodes that a job selects; without one, what selector or user tell.

        Nodes with fewer GPUs than a pod asks for do not count, nor those that take no pods or have
        a taint the pod does not bear, unless there are no others. A selector that names a GPU names
        it for nodes that an autoscaler is yet to add, too.
        """
        known, table = self._known(job), self.nodes()
        if known.table is not table:
            known.table, known.candidates = table, self._candidates(job, table)
        return known.candidates

    def _candidates(self, job: PodJob, table: NodeTable) -> GpuCandidates:
        found = [
            (node, kind)
            for node in table.values()
            if (kind := node.type_for(job.resource)) is not None
            and kind.count * kind.replicas >= job.gpus_per_pod
            and selects(job, node.labels, node.name)
        ]
        open_ = (
            kind
            for node, kind in found
            if node.takes_pods and all(_bears(job, taint) for taint in node.taints)
        )
        # Equal types are mostly one object: to hash thousands of them would take milliseconds.
        kinds = {id(kind): kind for kind in open_} or {id(kind): kind for _, kind in found}
        if kinds:
            return GpuCandidates(tuple(dict.fromkeys(kinds.values())))
        # A node with the labels of the selector and what the pod asks for.
        capacity = {job.resource: job.gpus_per_pod}
        node = {"metadata": {"labels": job.node_selector}, "status": {"capacity": capacity}}
        selected = gpu_node(node, self.config.hardware).type_for(job.resource)
        if selected and selected.gpu and not selected.product.endswith(SHARED):
            return GpuCandidates((selected,))
        gpu = known_gpu(job.stated.values.get("gpu", ""))
        stated = (
            () if gpu is None else (GpuType(gpu.product, gpu, job.gpus_per_pod, gpu.memory_bytes),)
        )
        return GpuCandidates(stated, certain=False)

    def request(self, job: PodJob, obj: Mapping[str, Any], name: str) -> JobRequest:
        """A job, or what makes its pods, as similar runs are found by it where it had best go."""
        steps, metadata = self.steps(job, self.candidates(job).types), mapping(obj, "metadata")
        best = steps[0][0].gpu if steps else None
        return request_of(
            text(metadata, "namespace"),
            job,
            stated_text(job.stated),
            name="" if job.script else name or text(metadata, "generateName").rstrip("-"),
            gpus=job.gpus,
            gpu_type="" if best is None else best.name,
            limit_s=job.deadline_s,
        )

    def like(self, job: PodJob, obj: Mapping[str, Any], name: str) -> Estimate | None:
        """The estimate of such a job by the site; None where neither runs nor physics speak."""
        return None if self.site is None else self.site.of(self.request(job, obj, name))

    def able(self, job: PodJob, kinds: Iterable[GpuType]) -> frozenset[GpuType]:
        """The types that run a job, as far as is known."""
        return able(job, self.estimates(job, kinds))

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

    def _refused(self, job: PodJob, kinds: Sequence[GpuType]) -> list[str | None]:
        """Why each type is refused, None for one that is not."""
        known = self._known(job).refusals
        for estimate in self.estimates(job, [kind for kind in kinds if kind not in known]):
            known[estimate.type] = refusal(job, estimate, self.config)
        return [known[kind] for kind in kinds]

    def _index(self, resource: str, nodes: NodeTable | None = None) -> TypeIndex:
        if nodes is not None:
            return TypeIndex(nodes, resource)
        table = self.nodes()
        if self._table is not table or len(self._indices) > MAX_RESOURCES:
            self._table, self._indices = table, {}
        if resource not in self._indices:
            self._indices[resource] = TypeIndex(table, resource)
        return self._indices[resource]
