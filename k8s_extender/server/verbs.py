"""What is answered: filter, prioritize and preempt, and reviews; counted and logged.

An error of ours never loses a node, and never refuses an object.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import TypeVar

from predictor.service.logs import event_logger

from .. import wire
from ..admission import Admission, Reviewed, ReviewOutcome
from ..admission.review import request_of
from ..decide import Decider
from ..estimate import lacking
from ..node_labels import gpu_node
from ..nodes import LiveTable
from ..records import FilterResult, GpuNode, PodJob, pod_name
from ..type_index import HostScores
from ..workload import JobReader
from ..writeback import Writeback
from .app import Handler
from .metrics import ExtenderMetrics
from .state import ServerState

_log = logging.getLogger(__name__)
_events = event_logger(__name__)
Answer = TypeVar("Answer")

NO_SCORES = HostScores({}, ())
REVIEW = "mutate"
# A namespace, a slash and a name; what is longer comes from no API server.
MAX_SHOWN = 63 + 1 + 253


class CallOutcome(StrEnum):
    """What came of a call."""

    DECIDED = "decided"
    NOTHING_KNOWN = "nothing_known"  # no GPU pod, or it does not say enough of what it trains
    NOT_READY = "not_ready"
    FAILED = "failed"  # an error of ours: everything passes


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
        everything = FilterResult(request.names)

        def filtered(decider: Decider, job: PodJob) -> FilterResult:
            found = decider.filter(job, request.names, self._sent(request))
            _afterwards(lambda: self._filtered(decider, request.pod, job, found))
            return found

        outcome, result = self._decided("filter", request.pod, filtered, everything)
        answer = wire.filter_answer(request, result)
        reasons = Counter(result.refused.values())
        self._enter(began, "filter", request.pod, outcome, request.names, result.passed, reasons)
        return answer

    def prioritize(self, body: bytes) -> bytes:
        """The answer to a prioritize call; raises WireError."""
        began = time.perf_counter()
        request = wire.nodes_request(body)

        def scored(decider: Decider, job: PodJob) -> HostScores:
            return decider.prioritize(job, request.names, self._sent(request))

        outcome, scores = self._decided("prioritize", request.pod, scored, NO_SCORES)
        answer = wire.prioritize_answer(map(scores.__getitem__, request.names))
        self._enter(began, "prioritize", request.pod, outcome, request.names, request.names, {})
        return answer

    def preempt(self, body: bytes) -> bytes:
        """The answer to a preempt call; raises WireError."""
        began = time.perf_counter()
        request = wire.preempt_request(body)
        names: Sequence[str] = list(request.victims)

        def filtered(decider: Decider, job: PodJob) -> Sequence[str]:
            return decider.filter(job, names).passed

        outcome, passed = self._decided("preempt", request.pod, filtered, names)
        self._enter(began, "preempt", request.pod, outcome, names, passed, {})
        return wire.preempt_answer(request, passed)

    def _decided(
        self, verb: str, pod: wire.Json, decide: Callable[[Decider, PodJob], Answer], all_: Answer
    ) -> tuple[CallOutcome, Answer]:
        """What came of it, and the answer: ``all_`` where every node is to pass."""
        decider = self._state.decider
        if decider is None:
            return CallOutcome.NOT_READY, all_
        try:
            job = self._job_of(pod, decider.config, decider.rules)
            if job is None:
                return CallOutcome.NOTHING_KNOWN, all_
            outcome = CallOutcome.NOTHING_KNOWN if lacking(job) else CallOutcome.DECIDED
            answer = decide(decider, job)
            return outcome, all_ if self._state.observes else answer
        except Exception:
            _log.exception("%s failed: every node passes", verb)
            return CallOutcome.FAILED, all_

    def _filtered(self, decider: Decider, pod: wire.Json, job: PodJob, found: FilterResult) -> None:
        for reason in set(found.refused.values()):
            self._metrics.kept_off.labels(reason).inc()
        if self._writeback is not None:
            self._writeback.filtered(decider, pod_name(pod), job, found)

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
        nodes: Sequence[str],
        passed: Sequence[str],
        reasons: Mapping[str, int],
    ) -> None:
        """Count and log a call, with the nodes refused for each reason."""
        duration_s = time.perf_counter() - began

        def enter() -> None:
            self._metrics.answered(verb, outcome, duration_s, len(nodes))
            for reason, refused in reasons.items():
                self._metrics.refused.labels(reason).inc(refused)
            name = pod_name(pod)
            _events.log(
                logging.ERROR if outcome is CallOutcome.FAILED else logging.INFO,
                "decision",
                verb=verb,
                outcome=outcome.value,
                namespace=name.namespace,
                pod=name.name,
                uid=name.uid,
                nodes=len(nodes),
                passed=len(passed),
                duration_us=round(1e6 * duration_s),
                **({"reasons": dict(reasons)} if reasons else {}),
            )

        _afterwards(enter)


def admission_handlers(
    state: ServerState, metrics: ExtenderMetrics, writeback: Writeback | None = None
) -> Mapping[str, Handler]:
    """`mutate`, `mutate-filling` where a namespace asks for deadlines, `place` and `claim`."""

    def heard(reviewed: Reviewed) -> None:
        request, decision = reviewed.request, reviewed.decision
        metrics.answered(REVIEW, reviewed.outcome, reviewed.duration_s, None)
        if not request.dry_run:
            metrics.reviewed(decision.placed, decision.unplaced, decision.deadline_s)
            if writeback is not None and state.config.annotate.events:
                writeback.reviewed(reviewed)
        _events.log(
            logging.ERROR if reviewed.outcome is ReviewOutcome.FAILED else logging.INFO,
            "review",
            verb=REVIEW,
            outcome=reviewed.outcome.value,
            kind=request.kind[:MAX_SHOWN],
            object=request.name[:MAX_SHOWN],
            review=request.uid[:MAX_SHOWN],
            deadline_s=decision.deadline_s,
            placed=decision.placed,
            duration_us=round(1e6 * reviewed.duration_s),
        )

    admission = Admission(lambda: state.decider, heard)

    async def claim(body: bytes) -> bytes:
        if (devices := state.devices) is None:
            return admission.claim(body, lambda request, known: ())
        pod = await asyncio.to_thread(devices.claimed_by, request_of(body))
        return admission.claim(body, partial(devices.in_order, pod))

    return {
        REVIEW: admission.review,
        f"{REVIEW}-filling": admission.review_filling,
        "place": admission.place,
        "claim": claim,
    }


def _afterwards(work: Callable[[], None]) -> None:
    """Do something when the answer of this moment has left; what fails is logged by the loop."""
    asyncio.get_running_loop().call_soon(work)
