"""Filter, prioritize and preempt: bodies in, answers out; an error of ours never loses a node."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from predictor.service.logs import event_logger

from .. import wire
from ..alike import JobReader
from ..decide import Decider
from ..estimate import lacking
from ..node_labels import gpu_node
from ..node_table import LiveTable
from ..pod_name import pod_name
from ..records import FilterResult, GpuNode, PodJob
from ..type_index import HostScores
from ..writeback import Writeback
from .metrics import ExtenderMetrics
from .state import ServerState

_log = logging.getLogger(__name__)
_events = event_logger(__name__)
Answer = TypeVar("Answer")

NO_SCORES = HostScores({}, ())


class CallOutcome(StrEnum):
    """What came of a call."""

    DECIDED = "decided"
    NOTHING_KNOWN = "nothing_known"  # no GPU pod, or it does not say enough of what it trains
    NOT_READY = "not_ready"
    FAILED = "failed"  # an error of ours: everything passes


@dataclass(frozen=True, slots=True)
class _Decision(Generic[Answer]):
    """What was decided; ``answer`` is None where every node is to pass."""

    outcome: CallOutcome
    answer: Answer | None = None


class Verbs:
    """The verbs of the scheduler's extender calls, over the newest state.

    What is written, counted and logged of a call is done when its answer has left.
    """

    def __init__(
        self, state: ServerState, metrics: ExtenderMetrics, writeback: Writeback | None = None
    ) -> None:
        self._state = state
        self._metrics = metrics
        self._writeback = writeback
        self._job_of = JobReader()

    def filter(self, body: bytes) -> bytes:
        """The answer to a filter call; raises WireError."""
        began = time.perf_counter()
        request = wire.nodes_request(body)

        def filtered(decider: Decider, job: PodJob) -> FilterResult:
            result = decider.filter(job, request.names, self._sent(request))
            self._afterwards(lambda: self._kept_off(result))
            if (writeback := self._writeback) is not None:
                name = pod_name(request.pod)
                self._afterwards(lambda: writeback.filtered(decider, name, job, result))
            return result

        found = self._decided("filter", request.pod, filtered)
        result = found.answer or FilterResult(request.names)
        if self._observes:
            result = FilterResult(request.names)
        answer = wire.filter_answer(request, result)
        entry = ("filter", request.pod, found.outcome, len(request.names), len(result.passed))
        self._enter(began, *entry, result.refused.values())
        return answer

    def prioritize(self, body: bytes) -> bytes:
        """The answer to a prioritize call; raises WireError."""
        began = time.perf_counter()
        request = wire.nodes_request(body)

        def scored(decider: Decider, job: PodJob) -> HostScores:
            return decider.prioritize(job, request.names, self._sent(request))

        found = self._decided("prioritize", request.pod, scored)
        scores = NO_SCORES if found.answer is None or self._observes else found.answer
        answer = wire.prioritize_answer(map(scores.__getitem__, request.names))
        nodes = len(request.names)
        self._enter(began, "prioritize", request.pod, found.outcome, nodes, nodes)
        return answer

    def preempt(self, body: bytes) -> bytes:
        """The answer to a preempt call; raises WireError."""
        began = time.perf_counter()
        request = wire.preempt_request(body)
        names = list(request.victims)
        found = self._decided(
            "preempt", request.pod, lambda decider, job: decider.filter(job, names).passed
        )
        passed = names if found.answer is None or self._observes else found.answer
        answer = wire.preempt_answer(request, passed)
        self._enter(began, "preempt", request.pod, found.outcome, len(names), len(passed))
        return answer

    def _decided(
        self, verb: str, pod: wire.Json, decide: Callable[[Decider, PodJob], Answer]
    ) -> _Decision[Answer]:
        decider = self._state.decider
        if decider is None:
            return _Decision(CallOutcome.NOT_READY)
        try:
            job = self._job_of(pod, decider.config, decider.rules)
            if job is None:
                return _Decision(CallOutcome.NOTHING_KNOWN)
            unclear = lacking(job)
            outcome = CallOutcome.NOTHING_KNOWN if unclear else CallOutcome.DECIDED
            return _Decision(outcome, decide(decider, job))
        except Exception:
            _log.exception("%s failed: every node passes", verb)
            return _Decision(CallOutcome.FAILED)

    @property
    def _observes(self) -> bool:
        return self._state.config.mode == "observe"

    def _kept_off(self, result: FilterResult) -> None:
        for reason in set(result.refused.values()):
            self._metrics.kept_off(reason)

    def _sent(self, request: wire.NodesRequest) -> Mapping[str, GpuNode] | None:
        """The nodes that a request holds, None where it holds names only."""
        if request.nodes is None:
            return None
        hardware = self._state.config.hardware
        return LiveTable(gpu_node(node, hardware) for node in request.nodes).nodes

    def _enter(
        self,
        began: float,
        verb: str,
        pod: wire.Json,
        outcome: CallOutcome,
        nodes: int,
        passed: int,
        refusals: Iterable[str] = (),
    ) -> None:
        """Count and log a call, with a reason for each node that did not pass."""
        duration_s = time.perf_counter() - began

        def enter() -> None:
            self._metrics.answered(verb, outcome, duration_s, nodes)
            reasons = Counter(refusals)
            for reason, refused in reasons.items():
                self._metrics.refused(reason, refused)
            name = pod_name(pod)
            _events.log(
                logging.ERROR if outcome is CallOutcome.FAILED else logging.INFO,
                "decision",
                verb=verb,
                outcome=outcome.value,
                namespace=name.namespace,
                pod=name.name,
                uid=name.uid,
                nodes=nodes,
                passed=passed,
                duration_us=round(1e6 * duration_s),
                **({"reasons": dict(reasons)} if reasons else {}),
            )

        self._afterwards(enter)

    def _afterwards(self, work: Callable[[], None]) -> None:
        """Do something when the answer of this moment has left; what fails is logged."""

        def guarded() -> None:
            try:
                work()
            except Exception:
                _log.exception("what follows an answer failed")

        asyncio.get_running_loop().call_soon(guarded)
