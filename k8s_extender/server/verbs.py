"""Filter, prioritize and preempt: bodies in, answers out; an error of ours never loses a node."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import Any, Protocol, TypeVar

from .. import wire
from ..config import Hardware
from ..estimate import lacking
from ..node_table import NodeTable
from ..records import FilterResult, GpuNode, PodJob
from .known import Brain
from .logs import Log
from .metrics import Metrics
from .state import State

_log = logging.getLogger(__name__)
Answer = TypeVar("Answer")

# Jobs of larger bodies are not kept for the next call: what they hold may be as large.
MAX_KEPT_BYTES = 2**18
# Long enough for the answer to have left.
TELL_S = 0.002
NO_SCORES = wire.HostScores((), {})

GpuNodeOf = Callable[[Mapping[str, Any], Hardware], GpuNode]


class Outcome(StrEnum):
    """What came of a call."""

    DECIDED = "decided"
    NOTHING_KNOWN = "nothing_known"  # no GPU pod, or it does not say enough of what it trains
    NOT_READY = "not_ready"
    FAILED = "failed"  # an error of ours: everything passes


class Hearing(Protocol):
    """Hears what was decided for a pod, once the answer is on its way."""

    def filtered(self, brain: Brain, job: PodJob, result: FilterResult) -> None:
        """The filter's result for a job; returns without waiting for anyone."""

    def stop(self) -> None:
        """Finish what was begun, within a few seconds."""


@dataclass(slots=True)
class _Call:
    """One call on its way."""

    verb: str
    body_bytes: int
    pod: wire.Json = field(default_factory=dict)
    nodes_in: int = 0
    began: float = field(default_factory=time.perf_counter)
    duration_s: float = 0.0
    outcome: Outcome = Outcome.DECIDED


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The answer to a prioritize call that has not come yet."""

    brain: Brain
    job: PodJob
    names: Sequence[str]
    answer: bytes

    def fits(self, brain: Brain, job: PodJob, request: wire.NodesRequest) -> bool:
        """True where this is what a call asks for."""
        if self.brain is not brain or self.job is not job or request.nodes is not None:
            return False
        return self.names is request.names or list(self.names) == list(request.names)


class Verbs:
    """The verbs of the scheduler's extender calls, over the newest state."""

    def __init__(
        self,
        state: State,
        metrics: Metrics,
        log: Log,
        *,
        gpu_node: GpuNodeOf,
        hearing: Hearing | None = None,
    ) -> None:
        self._state = state
        self._metrics = metrics
        self._log = log
        self._gpu_node = gpu_node
        self._hearing = hearing
        self._last: tuple[bytes, wire.NodesRequest] | None = None
        self._prepared: _Prepared | None = None

    def filter(self, body: bytes) -> bytes:
        """The answer to a filter call; raises WireError."""
        call = _Call("filter", len(body))
        request = self._request(body)
        call.pod, call.nodes_in = request.pod, len(request.names)
        found = self._decided(call, lambda brain, job: self._filtered(brain, job, request))
        result = FilterResult(passed=tuple(request.names)) if found is None else found
        answer = wire.filter_answer(request, result)
        self._end(call, len(result.passed), (result.failed, result.unresolvable))
        return answer

    def prioritize(self, body: bytes) -> bytes:
        """The answer to a prioritize call; raises WireError."""
        call = _Call("prioritize", len(body))
        request = self._request(body)
        call.pod, call.nodes_in = request.pod, len(request.names)

        found = self._decided(call, lambda brain, job: self._scored(brain, job, request))
        answer = wire.prioritize_answer(request.names, NO_SCORES) if found is None else found
        self._end(call, len(request.names))
        return answer

    def preempt(self, body: bytes) -> bytes:
        """The answer to a preempt call; raises WireError."""
        call = _Call("preempt", len(body))
        request = wire.preempt_request(body)
        call.pod, call.nodes_in = request.pod, len(request.victims)
        found = self._decided(call, lambda brain, job: brain.acceptable(job, request.victims))
        names = tuple(request.victims) if found is None else found
        answer = wire.preempt_answer(request, names)
        self._end(call, len(names))
        return answer

    def _request(self, body: bytes) -> wire.NodesRequest:
        """The call of a body; prioritize mostly asks in the words that filter asked in before."""
        if self._last is not None and self._last[0] == body:
            return self._last[1]
        request = wire.nodes_request(body)
        self._last = (body, request) if len(body) <= MAX_KEPT_BYTES else None
        return request

    def _filtered(self, brain: Brain, job: PodJob, request: wire.NodesRequest) -> FilterResult:
        result = brain.filter(job, request.names, self._sent(brain, request.nodes))
        loop = asyncio.get_running_loop()
        if self._hearing is not None:
            loop.call_later(TELL_S, self._tell, brain, job, result)
        if request.nodes is None and len(result.passed) > 1:
            names = request.names if len(result.passed) == len(request.names) else result.passed
            loop.call_soon(self._prepare, brain, job, names)
        return result

    def _prepare(self, brain: Brain, job: PodJob, names: Sequence[str]) -> None:
        """Score the nodes that passed while the scheduler reads which: it asks for that next."""
        try:
            answer = wire.prioritize_answer(names, brain.host_scores(job, names))
        except Exception:
            _log.exception("scores could not be prepared")
            return
        self._prepared = _Prepared(brain, job, names, answer)

    def _scored(self, brain: Brain, job: PodJob, request: wire.NodesRequest) -> bytes:
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared.fits(brain, job, request):
            return prepared.answer
        scores = brain.host_scores(job, request.names, self._sent(brain, request.nodes))
        return wire.prioritize_answer(request.names, scores)

    def _tell(self, brain: Brain, job: PodJob, result: FilterResult) -> None:
        assert self._hearing is not None
        try:
            self._hearing.filtered(brain, job, result)
        except Exception:
            _log.exception("a decision could not be written back")

    def _sent(
        self, brain: Brain, nodes: Sequence[wire.Json] | None
    ) -> Mapping[str, GpuNode] | None:
        """The nodes that a request holds, None where it holds names only."""
        if nodes is None:
            return None
        return NodeTable(self._gpu_node(node, brain.config.hardware) for node in nodes).nodes

    def _decided(self, call: _Call, decide: Callable[[Brain, PodJob], Answer]) -> Answer | None:
        """What was decided; None, with the outcome set, where every node is to pass."""
        brain = self._state.brain
        if brain is None:
            call.outcome = Outcome.NOT_READY
            return None
        try:
            job = brain.job(call.pod, keep=call.body_bytes <= MAX_KEPT_BYTES)
            if job is None:
                call.outcome = Outcome.NOTHING_KNOWN
                return None
            if lacking(job, brain.config):
                call.outcome = Outcome.NOTHING_KNOWN
            return decide(brain, job)
        except Exception:
            call.outcome = Outcome.FAILED
            _log.exception("%s failed: every node passes", call.verb)
            return None

    def _end(self, call: _Call, passed: int, refused: Sequence[Mapping[str, str]] = ()) -> None:
        """Count and log a call, once its answer is on its way."""
        call.duration_s = time.perf_counter() - call.began
        asyncio.get_running_loop().call_soon(self._done, call, passed, refused)

    def _done(self, call: _Call, passed: int, refused: Sequence[Mapping[str, str]]) -> None:
        self._metrics.answered(call.verb, call.outcome, call.duration_s, call.nodes_in)
        reasons = Counter(chain.from_iterable(texts.values() for texts in refused))
        for reason, nodes in reasons.items():
            self._metrics.refused(reason, nodes)
        metadata = call.pod.get("metadata") or {}
        more = {"reasons": dict(reasons)} if reasons else {}
        self._log.event(
            "info" if call.outcome is not Outcome.FAILED else "error",
            "decision",
            time.time(),
            verb=call.verb,
            outcome=call.outcome.value,
            namespace=metadata.get("namespace"),
            pod=metadata.get("name"),
            uid=metadata.get("uid"),
            nodes=call.nodes_in,
            passed=passed,
            duration_us=round(1e6 * call.duration_s),
            **more,
        )
