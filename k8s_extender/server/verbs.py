"""Filter, prioritize and preempt: bodies in, answers out; an error of ours never loses a node."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from .. import wire
from ..config import Hardware
from ..estimate import lacking
from ..node_table import LiveTable
from ..pod_name import PodName, pod_name
from ..records import FilterResult, GpuNode, PodJob
from .calls import Call, Ledger, Outcome
from .known import Brain
from .later import Later
from .state import State

_log = logging.getLogger(__name__)
Answer = TypeVar("Answer")

# Jobs of larger bodies are not kept for the next call: what they hold may be as large.
MAX_KEPT_BYTES = 2**18
NO_SCORES = wire.HostScores((), {})

GpuNodeOf = Callable[[Mapping[str, Any], Hardware], GpuNode]


class Hearing(Protocol):
    """Hears what was decided for a pod, once the answer is on its way."""

    def filtered(self, brain: Brain, pod: PodName, job: PodJob, result: FilterResult) -> None:
        """The filter's result for a pod's job; returns without waiting for anyone."""

    def stop(self) -> None:
        """Finish what was begun, within a few seconds."""


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
        return self.names is request.names or self.names == request.names


class Verbs:
    """The verbs of the scheduler's extender calls, over the newest state.

    What is written, counted and logged of a call is done ``later`` than its answer: that of a
    filter call after the prioritize call that follows.
    """

    def __init__(
        self,
        state: State,
        ledger: Ledger,
        later: Later,
        *,
        gpu_node: GpuNodeOf,
        hearing: Hearing | None = None,
    ) -> None:
        self._state = state
        self._ledger = ledger
        self._later = later
        self._gpu_node = gpu_node
        self._hearing = hearing
        self._last: tuple[bytes, wire.NodesRequest] | None = None
        self._prepared: _Prepared | None = None

    def filter(self, body: bytes) -> bytes:
        """The answer to a filter call; raises WireError."""
        began = time.perf_counter()
        request = self._request(body)
        call = Call("filter", request.pod, len(request.names), began)
        found = self._decided(call, body, partial(self._filtered, request))
        result = FilterResult(request.names) if found is None else found
        answer = wire.filter_answer(request, result)
        call.end()
        self._enter(call, len(result.passed), result.refused)
        return answer

    def prioritize(self, body: bytes) -> bytes:
        """The answer to a prioritize call; raises WireError."""
        began = time.perf_counter()
        request = self._request(body)
        call = Call("prioritize", request.pod, len(request.names), began)
        found = self._decided(call, body, partial(self._scored, request))
        answer = wire.prioritize_answer(request.names, NO_SCORES) if found is None else found
        call.end()
        self._enter(call, len(request.names))
        self._later.soon()
        return answer

    def preempt(self, body: bytes) -> bytes:
        """The answer to a preempt call; raises WireError."""
        began = time.perf_counter()
        request = wire.preempt_request(body)
        names = list(request.victims)
        call = Call("preempt", request.pod, len(names), began)
        found = self._decided(call, body, lambda brain, job: brain.filter(job, names).passed)
        passed = names if found is None else found
        answer = wire.preempt_answer(request, passed)
        call.end()
        self._enter(call, len(passed))
        return answer

    def _request(self, body: bytes) -> wire.NodesRequest:
        """The call of a body; prioritize mostly asks in the words that filter asked in before."""
        if self._last is not None and self._last[0] == body:
            return self._last[1]
        request = wire.nodes_request(body)
        self._last = (body, request) if len(body) <= MAX_KEPT_BYTES else None
        return request

    def _decided(
        self, call: Call, body: bytes, decide: Callable[[Brain, PodJob], Answer]
    ) -> Answer | None:
        """What was decided; None, with the outcome set, where every node is to pass."""
        brain = self._state.brain
        if brain is None:
            call.outcome = Outcome.NOT_READY
            return None
        try:
            job = brain.job(call.pod, keep=len(body) <= MAX_KEPT_BYTES)
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

    def _filtered(self, request: wire.NodesRequest, brain: Brain, job: PodJob) -> FilterResult:
        result = brain.filter(job, request.names, self._sent(request, brain))
        if request.nodes is None and len(result.passed) > 1:
            asyncio.get_running_loop().call_soon(self._prepare, brain, job, result.passed)
        if (hearing := self._hearing) is not None:
            pod = request.pod
            self._later.add(lambda: hearing.filtered(brain, pod_name(pod), job, result))
        return result

    def _prepare(self, brain: Brain, job: PodJob, names: Sequence[str]) -> None:
        """Score the nodes that passed while the scheduler reads which: it asks for that next."""
        try:
            answer = wire.prioritize_answer(names, brain.host_scores(job, names))
        except Exception:
            _log.exception("scores could not be prepared")
            return
        self._prepared = _Prepared(brain, job, names, answer)

    def _scored(self, request: wire.NodesRequest, brain: Brain, job: PodJob) -> bytes:
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared.fits(brain, job, request):
            return prepared.answer
        scores = brain.host_scores(job, request.names, self._sent(request, brain))
        return wire.prioritize_answer(request.names, scores)

    def _sent(self, request: wire.NodesRequest, brain: Brain) -> Mapping[str, GpuNode] | None:
        """The nodes that a request holds, None where it holds names only."""
        if request.nodes is None:
            return None
        return LiveTable(self._gpu_node(n, brain.config.hardware) for n in request.nodes).nodes

    def _enter(self, call: Call, passed: int, refused: Mapping[str, str] | None = None) -> None:
        reasons = refused.values() if refused else ()
        self._later.add(partial(self._ledger.enter, call, passed, reasons))
