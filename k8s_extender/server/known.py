"""What a call has found out of a pod, kept for the next calls about the same pod."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from weakref import ReferenceType, ref

from predictor.estimate.core import Predictor
from predictor.identify.rules import Rules

from ..config import Config
from ..decide import Decider, NodeTable
from ..estimate import TypeEstimate, estimates
from ..records import FilterResult, GpuType, PodJob, Refusal
from ..type_index import Code, TypeIndex

MAX_PODS = 64

JobOf = Callable[[Mapping[str, Any], Config, Rules], PodJob | None]
Predicted = Callable[[TypeEstimate], None]
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class _Last(Generic[Answer]):
    """What was found last, and for which types; it keeps no table alive that has changed."""

    index: ReferenceType[TypeIndex]
    present: frozenset[int]
    answer: Answer

    def holds(self, index: TypeIndex, present: frozenset[int]) -> bool:
        """True where this is the answer for these types, too."""
        return self.index() is index and self.present == present


@dataclass(slots=True)
class _Known:
    """What is known of jobs that are alike, ``job`` being one of them."""

    job: PodJob
    estimates: dict[GpuType, TypeEstimate] = field(default_factory=dict)
    refusals: _Last[Mapping[Code, Refusal]] | None = None
    scores: _Last[Mapping[Code, int]] | None = None
    open: ReferenceType[TypeIndex] | None = None  # of a table where no node is refused


class Brain(Decider):
    """Decides by one configuration; reads a pod and predicts it on a GPU type only once.

    ``predicted`` hears of each new prediction. Pods are told apart by uid and resource version.
    ``version`` is that of the predictor.
    """

    def __init__(
        self,
        predictor: Predictor,
        config: Config,
        nodes: Callable[[], NodeTable],
        *,
        rules: Rules,
        job_of: JobOf,
        version: str = "",
        predicted: Predicted = lambda estimate: None,
    ) -> None:
        super().__init__(predictor, config, nodes)
        self.rules = rules
        self.version = version
        self._job_of = job_of
        self._predicted = predicted
        self._jobs: OrderedDict[tuple[str, str], PodJob | None] = OrderedDict()
        self._known: OrderedDict[Hashable, _Known] = OrderedDict()

    def job(self, pod: Mapping[str, Any], *, keep: bool = True) -> PodJob | None:
        """The job of a pod, None where there is nothing to decide for it."""
        key = _identity(pod) if keep else None
        if key is None:
            return self._job_of(pod, self.config, self.rules)
        if key in self._jobs:
            self._jobs.move_to_end(key)
            return self._jobs[key]
        job = self._jobs[key] = self._job_of(pod, self.config, self.rules)
        if len(self._jobs) > MAX_PODS:
            self._jobs.popitem(last=False)
        return job

    def estimates(self, job: PodJob, kinds: Iterable[GpuType]) -> tuple[TypeEstimate, ...]:
        """The job on each of some GPU types."""
        known = self._of(job)
        distinct = dict.fromkeys(kinds)
        new = [kind for kind in distinct if kind not in known.estimates]
        for estimate in estimates(self.predictor, self.config, job, new):
            known.estimates[estimate.type] = estimate
            self._predicted(estimate)
        return tuple(known.estimates[kind] for kind in distinct)

    def filter(
        self, job: PodJob, names: Sequence[str], nodes: NodeTable | None = None
    ) -> FilterResult:
        """The same, without a look at the names where no node of the table is refused."""
        known_open = self._of(job).open
        if nodes is None and known_open and known_open() is self._index(job.resource):
            return FilterResult(names)
        return super().filter(job, names, nodes)

    def refusals(
        self, job: PodJob, index: TypeIndex, present: frozenset[int]
    ) -> Mapping[Code, Refusal]:
        """Why some of the types that are present are refused."""
        known = self._of(job)
        last = known.refusals
        if last is None or not last.holds(index, present):
            last = _Last(ref(index), present, super().refusals(job, index, present))
            known.refusals = last
            if not last.answer and len(present) == len(index.types):
                known.open = last.index
        return last.answer

    def scores(self, job: PodJob, index: TypeIndex, present: frozenset[int]) -> Mapping[Code, int]:
        """The scores of the types that are present."""
        known = self._of(job)
        last = known.scores
        if last is None or not last.holds(index, present):
            last = _Last(ref(index), present, super().scores(job, index, present))
            known.scores = last
        return last.answer

    def warm(self, job: PodJob, kinds: Iterable[GpuType]) -> None:
        """Predict and rank a job that nobody runs."""
        self._ranking.scores(job, estimates(self.predictor, self.config, job, kinds))

    def _of(self, job: PodJob) -> _Known:
        """What is known of a job; ``stated`` cannot be hashed, so it counts by identity.

        The entry keeps it alive.
        """
        key = (
            id(job.stated),
            job.gpus_per_pod,
            job.pods,
            job.deadline_s,
            job.scheduling_policy,
            job.gpu_fraction,
        )
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _Known(job)
            if len(self._known) > MAX_PODS:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return known


def _identity(pod: Mapping[str, Any]) -> tuple[str, str] | None:
    metadata = pod.get("metadata") or {}
    uid, version = metadata.get("uid"), metadata.get("resourceVersion")
    if isinstance(uid, str) and isinstance(version, str) and uid and version:
        return uid, version
    return None
