"""Predictions and refusals, told on the pods themselves; nothing waits for it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from kubernetes.client import ApiClient, BatchV1Api, CoreV1Api

from .admission import Reviewed, ReviewOutcome
from .admission.notes import predicted
from .admission.review import subject_of
from .api_queue import ApiCall, ApiQueue, Recent
from .bound import DeadlineChange
from .config import PREFIX
from .decide import Decider
from .estimate import TypeEstimate
from .plain import go_duration
from .records import FilterResult, PodJob, PodName
from .watching import CALL_TIMEOUT_S

BY_GPU = f"{PREFIX}predicted-by-gpu"
# Each change of a waiting pod wakes the scheduler, which asks us again.
ANNOTATION_PAUSE_S = 60.0
EVENT_PAUSE_S = 60.0
# Events live for an hour by default.
EVENT_REPEAT_S = 1800.0
MAX_PROBLEMS = 4
OPTIONS = {"_preload_content": False, "_request_timeout": CALL_TIMEOUT_S}
MAX_TYPES = 16


class Writeback:
    """Hears decisions and writes on pods what ``annotate`` of the configuration asks for.

    Where the mode is ``observe`` it only creates events. Annotations tell the times on the slowest
    GPU type that the pod may land on, and where there are several the median of each. One event
    tells why nodes were refused; the same words are not said again within half an hour. Needs the
    verbs patch on pods and create on events.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        version: Callable[[], str] = lambda: "",
        queue: ApiQueue | None = None,
    ) -> None:
        self._api: Any = CoreV1Api(client)
        self._batch: Any = BatchV1Api(client)
        self._version = version
        self._recent = Recent()
        self.queue = ApiQueue() if queue is None else queue

    def filtered(self, decider: Decider, pod: PodName, job: PodJob, result: FilterResult) -> None:
        """Take note of a filter's result; returns without a call to the API server."""
        if not (pod.uid and pod.name and pod.namespace):
            return
        annotate, observed = decider.config.annotate, decider.config.mode == "observe"
        if annotate.events and (counts := Counter(result.refused.values())):
            self._tell(pod, refused(counts, result, observed=observed))
        if observed or not (annotate.pods or annotate.events):
            return
        types = decider.types(job, result.passed)
        found = decider.estimates(
            job, sorted(types, key=lambda k: (k.product, k.count, k.replicas))
        )
        told = [e for e in found if e.step_s is not None and not e.assumed]
        if annotate.pods and told:
            self._annotate(pod, told)
        if annotate.events and (texts := _unclear(job, found, told)):
            self._tell(pod, unclear(texts))

    def reviewed(self, reviewed: Reviewed) -> None:
        """Tell what a new object would have been given."""
        decision, subject = reviewed.decision, subject_of(reviewed.request)
        told = bool(decision.placed or decision.deadline_s)
        if reviewed.outcome is ReviewOutcome.OBSERVED and told and subject.name:
            self._tell(subject, would(decision.order, decision.deadline_s))

    def changed(self, change: DeadlineChange, lost: Callable[[], None]) -> None:
        """Change a deadline of ours, and tell so; ``lost`` is called where it cannot be done."""
        name, batch = change.name, change.name.kind == "Job"
        patch = self._batch.patch_namespaced_job if batch else self._api.patch_namespaced_pod
        if self._put(lambda: patch(name.name, name.namespace, change.patch, **OPTIONS), lost):
            self._tell(name, moved(change))

    def counted(self, audit: str, counts: Mapping[str, str]) -> None:
        """Keep counts in the ConfigMap of a ``namespace/name``, which must be there."""
        namespace, _, name = audit.partition("/")
        patch = self._api.patch_namespaced_config_map
        self._put(lambda: patch(name, namespace, {"data": dict(counts)}, **OPTIONS))

    def stop(self, timeout_s: float = 5.0) -> None:
        """Write what waits, and end."""
        self.queue.stop(timeout_s)

    def _annotate(self, pod: PodName, told: Sequence[TypeEstimate]) -> None:
        annotations = annotations_of(told, self._version())
        metadata = {"uid": pod.uid, "annotations": annotations}
        self._once(
            (pod.uid, "annotations"),
            tuple(sorted(annotations.items())),
            ANNOTATION_PAUSE_S,
            None,
            lambda: self._api.patch_namespaced_pod(
                pod.name, pod.namespace, {"metadata": metadata}, **OPTIONS
            ),
        )

    def _tell(self, pod: PodName, event: PodEvent) -> None:
        sent = body(event, pod)
        self._once(
            (pod.uid or pod, event.reason),
            event.subject,
            EVENT_PAUSE_S,
            EVENT_REPEAT_S,
            lambda: self._api.create_namespaced_event(pod.namespace, sent, **OPTIONS),
        )

    def _once(
        self,
        subject: Hashable,
        words: Hashable,
        least_s: float,
        repeat_s: float | None,
        make: Callable[[], Any],
    ) -> None:
        if self._recent.claim(subject, words, least_s=least_s, repeat_s=repeat_s):
            self._put(make, lambda: self._recent.forget(subject))

    def _put(self, make: Callable[[], Any], lost: Callable[[], None] = lambda: None) -> bool:
        return self.queue.put(ApiCall(make, lost))


def annotations_of(told: Sequence[TypeEstimate], version: str) -> dict[str, str]:
    """What is written on a pod of its estimates, all of them with a prediction."""
    slowest = max(told, key=lambda estimate: estimate.step_s or 0.0)
    annotations = predicted(slowest, version)
    if len(told) > 1:
        annotations[BY_GPU] = ",".join(map(_on_type, told[:MAX_TYPES]))
    return annotations


def _on_type(estimate: TypeEstimate) -> str:
    """``Tesla-T4=3h12m``, or the seconds of a step where the job has no length."""
    total_s = estimate.total_s(0.5)
    time = f"{estimate.step_s:.6g}s/step" if total_s is None else go_duration(total_s)
    return f"{estimate.type.product}={time}"


def _unclear(
    job: PodJob, found: Sequence[TypeEstimate], told: Sequence[TypeEstimate]
) -> tuple[str, ...]:
    """What of a job that speaks to us cannot be used; nothing for a job that does not."""
    problems = [f"{p.origin}: {p.text}" for p in job.stated.problems[:MAX_PROBLEMS]]
    lacking = {e.unclear for e in found} if found and not told else set()
    if not (job.stated.values or job.stated.unknown_model or problems):
        return ()
    return (*sorted(lacking), *problems)


COMPONENT = "precision-time"
REFUSED = "PrecisionTimeNodesRefused"
UNCLEAR = "PrecisionTimeNotPredicted"
OBSERVED = "PrecisionTimeObserved"
MOVED = "PrecisionTimeDeadline"
MAX_MESSAGE_BYTES = 1024
MAX_NAME = 200


@dataclass(frozen=True, slots=True)
class PodEvent:
    """One thing to say of a pod; ``subject`` stays the same where only numbers change."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"]
    subject: tuple[str, ...]


def refused(counts: Mapping[str, int], result: FilterResult, *, observed: bool) -> PodEvent:
    """Why some or all nodes were refused, or would have been, with the nodes of each reason."""
    verb = "would be refused" if observed else "refused"
    nodes, total = sum(counts.values()), sum(counts.values()) + len(result.passed)
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    reasons = "; ".join(f"{count} x {text}" for text, count in ordered)
    return PodEvent(
        reason=OBSERVED if observed else REFUSED,
        message=_short(f"{nodes} of {total} nodes {verb}: {reasons}"),
        type="Normal" if result.passed or observed else "Warning",
        subject=(verb, str(bool(result.passed)), *sorted(counts)),
    )


def would(order: str, deadline_s: int | None) -> PodEvent:
    """What a new object would have been given."""
    placed = f"would prefer {order}" if order else ""
    filled = "" if deadline_s is None else f"would set a deadline of {go_duration(deadline_s)}"
    words = "; ".join(part for part in (placed, filled) if part)
    return PodEvent(OBSERVED, _short(words), "Normal", (OBSERVED, words))


def moved(change: DeadlineChange) -> PodEvent:
    """What became of a deadline that we filled."""
    why = f"it runs on {change.basis}" if change.basis else "it waits for nodes"
    words = f"deadline {go_duration(change.old_s)} -> {go_duration(change.new_s)}: {why}"
    return PodEvent(MOVED, _short(words), "Normal", (MOVED, words))


def unclear(texts: tuple[str, ...]) -> PodEvent:
    """Why nothing is predicted, or what of the user's words cannot be used."""
    return PodEvent(UNCLEAR, _short("; ".join(texts)), "Normal", (UNCLEAR, *texts))


def body(event: PodEvent, pod: PodName) -> dict[str, Any]:
    """The object of the API (core/v1); the same words about a pod have the same name."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    words = "\n".join((pod.uid, *event.subject)).encode(errors="replace")
    start = pod.name[:MAX_NAME].rstrip(".-")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{start}.{hashlib.sha256(words).hexdigest()[:16]}",
            "namespace": pod.namespace,
        },
        "involvedObject": {
            "apiVersion": pod.api_version,
            "kind": pod.kind,
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        },
        "reason": event.reason,
        "message": event.message,
        "type": event.type,
        "source": {"component": COMPONENT},
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
    }


def _short(text: str) -> str:
    """At most what the API server takes, cut between characters."""
    raw = text.encode(errors="replace")
    if len(raw) <= MAX_MESSAGE_BYTES:
        return raw.decode()
    return raw[: MAX_MESSAGE_BYTES - 4].decode(errors="ignore") + " ..."
