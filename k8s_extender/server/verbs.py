"""What is answered: filter, prioritize and preempt, and reviews; counted and logged.

An error of ours never loses a node, and never refuses an object.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import orjson

from predictor.service.logs import event_logger
from predictor.service.process import DeadlineError, time_bound

from ..admission import Admission, Outcome, Reviewed
from ..admission.review import BUDGET_S, request_of
from ..decide import Decider, FilterResult, HostScores
from ..errors import WireError
from ..nodes import GpuNode, gpu_node
from ..plain import at, pod_name
from ..rank import lacking
from ..workload import PodJob
from ..writeback import Writeback
from .app import Handler
from .state import ExtenderMetrics, ServerState

_log = logging.getLogger(__name__)
_events = event_logger(__name__)
Answer = TypeVar("Answer")

REVIEW = "mutate"
# A namespace, a slash and a name; what is longer comes from no API server.
MAX_SHOWN = 63 + 1 + 253


LEVELS: Mapping[str, int] = {Outcome.FAILED: logging.ERROR, Outcome.LATE: logging.WARNING}


@dataclass(frozen=True, slots=True)
class Verbs:
    """The verbs of the scheduler's extender calls, over the newest state.

    What is written, counted and logged of a call is done when its answer has left.
    """

    state: ServerState
    metrics: ExtenderMetrics
    writeback: Writeback | None = None

    def filter(self, body: bytes) -> bytes:
        """The answer to a filter call; raises WireError."""
        began, request = time.perf_counter(), nodes_request(body)
        return filter_answer(request, self._filtered(began, "filter", request))

    def prioritize(self, body: bytes) -> bytes:
        """The answer to a prioritize call; raises WireError."""
        began, request = time.perf_counter(), nodes_request(body)
        scores = self._decided(
            began,
            "prioritize",
            request,
            lambda decider, job: decider.prioritize(job, request.names, self._sent(request)),
            HostScores({}, ()),
        )
        return f"[{','.join(map(scores.__getitem__, request.names))}]".encode()

    def preempt(self, body: bytes) -> bytes:
        """The answer to a preempt call; raises WireError."""
        began, request = time.perf_counter(), preempt_request(body)
        return preempt_answer(request, self._filtered(began, "preempt", request).passed)

    def _filtered(self, began: float, verb: str, request: NodesRequest) -> FilterResult:
        return self._decided(
            began,
            verb,
            request,
            lambda decider, job: decider.filter(job, request.names, self._sent(request)),
            FilterResult(request.names),
        )

    def _decided(
        self,
        began: float,
        verb: str,
        request: NodesRequest,
        decide: Callable[[Decider, PodJob], Answer],
        everything: Answer,
    ) -> Answer:
        """The answer: ``everything`` where every node is to pass. It is counted and logged."""
        outcome, decider = Outcome.NOT_READY, self.state.decider
        job: PodJob | None = None
        found = answer = everything
        try:
            with time_bound(BUDGET_S):
                if decider is not None:
                    outcome = Outcome.NOTHING_KNOWN
                    job = decider.job_of(request.pod)
                if decider is not None and job is not None:
                    found = decide(decider, job)
                    outcome = outcome if lacking(job) else Outcome.DECIDED
            if decider is not None and decider.config.mode == "place":
                answer = found
        except DeadlineError:
            found, outcome = everything, Outcome.LATE
        except Exception:
            _log.exception("%s failed: every node passes", verb)
            outcome = Outcome.FAILED

        def enter() -> None:
            duration_s, name = time.perf_counter() - began, pod_name(request.pod)
            result = answer if isinstance(answer, FilterResult) else FilterResult(request.names)
            reasons = Counter(result.refused.values() if verb == "filter" else ())
            nodes, passed = len(request.names), len(result.passed)
            self.metrics.answered(verb, outcome, duration_s, nodes)
            for reason, refused in reasons.items():
                self.metrics.refused.labels(reason).inc(refused)
            _events.log(
                LEVELS.get(outcome, logging.INFO),
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
            if verb != "filter" or outcome in LEVELS or not decider or not job:
                return
            assert isinstance(found, FilterResult)
            for reason in set(found.refused.values()):
                self.metrics.kept_off.labels(reason).inc()
            if self.writeback is not None:
                self.writeback.filtered(decider, name, job, found)

        # When the answer of this moment has left; what fails is logged by the loop.
        asyncio.get_running_loop().call_soon(enter)
        return answer

    def _sent(self, request: NodesRequest) -> Mapping[str, GpuNode] | None:
        """The nodes that a request holds, None where it holds names only."""
        if request.nodes is None:
            return None
        hardware = self.state.config.hardware
        return {one.name: one for one in (gpu_node(node, hardware) for node in request.nodes)}


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
            LEVELS.get(reviewed.outcome, logging.INFO),
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

    def later(reviewed: Reviewed) -> None:
        asyncio.get_running_loop().call_soon(heard, reviewed)  # when the answer has left

    admission = Admission(lambda: state.decider, later)

    async def claim(body: bytes) -> bytes:
        if (devices := state.devices) is None:
            return admission.claim(body, lambda request, known: ())
        pod = await asyncio.to_thread(devices.claimed_by, request_of(body))
        return admission.claim(body, partial(devices.in_order, pod))

    return {
        REVIEW: admission.review,
        f"{REVIEW}-filling": partial(admission.review, by_namespace=True),
        "place": admission.place,
        "claim": claim,
    }


Json = Mapping[str, Any]

# A body of millions of tiny values would take thirty times its size in memory. Bodies of the
# scheduler hold a value per 25 to 30 bytes.
UNCOUNTED_BYTES = 2**17
SPARE_VALUES = 20_000
BYTES_A_VALUE = 12
MAX_VALUE_SHOWN = 60
EXPECTED: Mapping[type[Any], str] = {
    dict: "an object",
    list: "an array",
    str: "a text",
    int: "a whole number",
}
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class NodesRequest:
    """A call about nodes, which are whole in ``nodes`` where the scheduler sent them so.

    ``victims`` are of a preempt call: by node what preemption would take there, as it is answered.
    """

    pod: Json
    names: Sequence[str]
    nodes: Sequence[Json] | None = None
    victims: Mapping[str, Json] = field(default_factory=dict)


def nodes_request(body: bytes) -> NodesRequest:
    """The filter or prioritize call of a body; raises WireError naming the key."""
    raw, pod = _read(body)
    whole = _given(raw.get("Nodes"), dict, "Nodes")
    names = _given(raw.get("NodeNames"), list, "NodeNames")
    if whole is not None:
        nodes, names = _given(whole.get("items"), list, "Nodes.items") or [], []
        for i, node in enumerate(nodes):
            key = f"Nodes.items[{i}].metadata"
            metadata = _needed(_needed(node, dict, key[:-9]).get("metadata"), dict, key)
            names.append(_needed(metadata.get("name"), str, f"{key}.name"))
        return NodesRequest(pod, names, nodes)
    if names is None:
        raise WireError("NodeNames and Nodes are both null: one of them is needed")
    try:
        "".join(names)
    except TypeError:
        for i, name in enumerate(names):
            _needed(name, str, f"NodeNames[{i}]")
    return NodesRequest(pod, names)


def preempt_request(body: bytes) -> NodesRequest:
    """The preempt call of a body; raises WireError naming the key."""
    raw, pod = _read(body)
    key = "NodeNameToMetaVictims" if raw.get("NodeNameToMetaVictims") else "NodeNameToVictims"
    victims = {}
    for node, found in (_given(raw.get(key), dict, key) or {}).items():
        place = f"{key}.{node}"
        told = _given(found, dict, place) or {}
        uids = []
        for i, victim in enumerate(_given(told.get("Pods"), list, f"{place}.Pods") or ()):
            here = f"{place}.Pods[{i}]"
            named = _needed(victim, dict, here)
            # Sent as a uid or as a whole pod.
            uid = named["UID"] if "UID" in named else at(named, "metadata", "uid")
            uids.append({"UID": _needed(uid, str, f"{here}.UID")})
        number = _given(told.get("NumPDBViolations"), int, f"{place}.NumPDBViolations")
        victims[node] = {"Pods": uids, "NumPDBViolations": number or 0}
    return NodesRequest(pod, list(victims), victims=victims)


def filter_answer(request: NodesRequest, result: FilterResult) -> bytes:
    """The answer to a filter call: names always, whole nodes where the request held them.

    Raises WireError where a node of the request cannot be sent back.
    """
    nodes = None
    if request.nodes is not None:
        passed = set(result.passed)
        nodes = {"items": [n for n in request.nodes if n["metadata"]["name"] in passed]}
    answer = {
        "Nodes": nodes,
        "NodeNames": result.passed,
        "FailedNodes": {},  # preemption would evict pods for reasons that it does not change
        "FailedAndUnresolvableNodes": result.refused,
        "Error": "",
    }
    try:
        return orjson.dumps(answer)
    except orjson.JSONEncodeError as error:
        raise WireError(f"Nodes cannot be sent back: {error}") from None


def preempt_answer(request: NodesRequest, names: Collection[str]) -> bytes:
    """The answer to a preempt call: the nodes that may be used, with their victims."""
    kept = set(names)
    victims = {name: told for name, told in request.victims.items() if name in kept}
    return orjson.dumps({"NodeNameToMetaVictims": victims})


def _read(body: bytes) -> tuple[Json, Json]:
    """A body, and the pod in it."""
    if len(body) > UNCOUNTED_BYTES:
        values = sum(map(body.count, (b",", b"[", b"{")))
        if values > SPARE_VALUES + len(body) // BYTES_A_VALUE:
            raise WireError(f"body holds {values} values in {len(body)} bytes: too many")
    try:
        raw = _needed(orjson.loads(body), dict, "body")
    except orjson.JSONDecodeError as error:
        raise WireError(f"body is not JSON: {error}") from None
    pod = _needed(raw.get("Pod"), dict, "Pod")
    for part in ("metadata", "spec", "status"):
        _given(pod.get(part), dict, f"Pod.{part}")
    return raw, pod


def _given(value: Any, kind: type[Value], key: str) -> Value | None:
    return None if value is None else _needed(value, kind, key)


def _needed(value: Any, kind: type[Value], key: str) -> Value:
    """A value of a type; raises WireError naming the key."""
    if type(value) is kind:
        found: Value = value
        return found
    shown = "null" if value is None else type(value).__name__
    if isinstance(value, str | int | float):
        shown = repr(value)[:MAX_VALUE_SHOWN]
    raise WireError(f"invalid {key[:200]}={shown}; expected {EXPECTED[kind]}")
