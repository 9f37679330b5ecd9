"""Predictions and refusals, told on the pods themselves; nothing waits for it."""

from __future__ import annotations

import hashlib
import logging
import random
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Any, Literal

from kubernetes import client as api
from kubernetes.client.exceptions import ApiException

from .admission import Outcome, Reviewed
from .admission.limits import MAX_PROBLEMS, predicted
from .admission.review import subject_of
from .bound import DeadlineChange
from .config import PREFIX
from .decide import Decider, FilterResult
from .plain import PodName, go_duration
from .rank import TypeEstimate
from .watching import FAILURES, OPTIONS, body_of, said
from .workload import PodJob

_log = logging.getLogger(__name__)
BY_GPU = f"{PREFIX}predicted-by-gpu"
# Each change of a waiting pod wakes the scheduler, which asks us again.
PAUSE_S = 60.0
# Events live for an hour by default.
EVENT_REPEAT_S = 1800.0
MAX_TYPES = 16

COMPONENT = "precision-time"
REFUSED = "PrecisionTimeNodesRefused"
UNCLEAR = "PrecisionTimeNotPredicted"
OBSERVED = "PrecisionTimeObserved"
MOVED = "PrecisionTimeDeadline"
MAX_MESSAGE_BYTES = 1024
MAX_NAME = 200


class Writeback:
    """Hears decisions and writes on pods what ``annotate`` of the configuration asks for.

    Where the mode is ``observe`` it only creates events. Annotations tell the times on the slowest
    GPU type that the pod may land on, and where there are several the median of each. One event
    tells why nodes were refused; the same words are not said again within half an hour. Needs the
    verbs patch on pods and create on events.
    """

    def __init__(self, client: api.ApiClient, *, queue: ApiQueue | None = None) -> None:
        self._api: Any = api.CoreV1Api(client)
        self._custom: Any = api.CustomObjectsApi(client)  # of any group, batch too
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
            self._annotate(pod, told, decider.version)
        # What of a job that speaks to us cannot be used.
        problems = [f"{p.origin}: {p.text}" for p in job.stated.problems[:MAX_PROBLEMS]]
        lacking = sorted({e.unclear for e in found}) if found and not told else []
        speaks = job.stated.values or job.stated.unknown_model or problems
        if annotate.events and speaks and (lacking or problems):
            self._tell(pod, PodEvent(UNCLEAR, "; ".join((*lacking, *problems))))

    def reviewed(self, reviewed: Reviewed) -> None:
        """Tell what a new object would have been given."""
        decision, subject = reviewed.decision, subject_of(reviewed.request)
        if reviewed.outcome is not Outcome.OBSERVED or not subject.name:
            return
        words = [f"would prefer {decision.order}"] if decision.order else []
        if decision.deadline_s:
            words.append(f"would set a deadline of {go_duration(decision.deadline_s)}")
        if words:
            self._tell(subject, PodEvent(OBSERVED, "; ".join(words)))

    def changed(self, change: DeadlineChange, lost: Callable[[], None]) -> None:
        """Change a deadline of ours, and tell so; ``lost`` is called where it cannot be done."""
        name, (group, _, version) = change.name, change.name.api_version.rpartition("/")
        patch, place = self._api.patch_namespaced_pod, [name.name, name.namespace]
        options = {**OPTIONS, "_content_type": "application/json-patch+json"}
        if group:
            patch = self._custom.patch_namespaced_custom_object
            place = [group, version, name.namespace, f"{name.kind.lower()}s", name.name]
        if self.queue.put(lambda: patch(*place, change.patch, **options), lost):
            why = f"it runs on {change.basis}" if change.basis else "it waits for nodes"
            old, new = go_duration(change.old_s), go_duration(change.new_s)
            self._tell(name, PodEvent(MOVED, f"deadline {old} -> {new}: {why}"))

    def counted(self, audit: str, counts: Mapping[str, str]) -> None:
        """Keep counts in the ConfigMap of a ``namespace/name``, which must be there."""
        namespace, _, name = audit.partition("/")
        patch = self._api.patch_namespaced_config_map
        self.queue.put(lambda: patch(name, namespace, {"data": dict(counts)}, **OPTIONS))

    def _annotate(self, pod: PodName, told: Sequence[TypeEstimate], version: str) -> None:
        """The times on the slowest type, and the median of each; all have a prediction."""
        annotations = predicted(max(told, key=lambda e: e.step_s or 0.0), version)
        if len(told) > 1:
            # ``Tesla-T4=3h12m``, or the seconds of a step where the job has no length.
            totals = ((e, e.total_s(0.5)) for e in told[:MAX_TYPES])
            annotations[BY_GPU] = ",".join(
                f"{e.type.product}={go_duration(s) if s is not None else f'{e.step_s:.6g}s/step'}"
                for e, s in totals
            )
        subject, words = (pod.uid, "annotations"), tuple(sorted(annotations.items()))
        patch = {"metadata": {"uid": pod.uid, "annotations": annotations}}
        if self._recent.claim(subject, words, least_s=PAUSE_S, repeat_s=None):
            self.queue.put(
                lambda: self._api.patch_namespaced_pod(pod.name, pod.namespace, patch, **OPTIONS),
                lambda: self._recent.forget(subject),
            )

    def _tell(self, pod: PodName, event: PodEvent) -> None:
        sent, subject = body(event, pod), (pod.uid or pod, event.reason)
        # The same words about a pod have the same name.
        words = sent["metadata"]["name"]
        if self._recent.claim(subject, words, least_s=PAUSE_S, repeat_s=EVENT_REPEAT_S):
            self.queue.put(
                lambda: self._api.create_namespaced_event(pod.namespace, sent, **OPTIONS),
                lambda: self._recent.forget(subject),
            )


@dataclass(frozen=True, slots=True)
class PodEvent:
    """One thing to say of a pod; ``subject`` stays the same where only numbers change."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"
    subject: tuple[str, ...] = ()


def refused(counts: Mapping[str, int], result: FilterResult, *, observed: bool) -> PodEvent:
    """Why some or all nodes were refused, or would have been, with the nodes of each reason."""
    verb = "would be refused" if observed else "refused"
    nodes, total = sum(counts.values()), sum(counts.values()) + len(result.passed)
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    reasons = "; ".join(f"{count} x {text}" for text, count in ordered)
    return PodEvent(
        reason=OBSERVED if observed else REFUSED,
        message=f"{nodes} of {total} nodes {verb}: {reasons}",
        type="Normal" if result.passed or observed else "Warning",
        subject=(verb, str(bool(result.passed)), *sorted(counts)),
    )


def body(event: PodEvent, pod: PodName) -> dict[str, Any]:
    """The object of the API (core/v1); the same words about a pod have the same name."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    subject = event.subject or (event.reason, event.message)
    words = "\n".join((pod.uid, *subject)).encode(errors="replace")
    start = pod.name[:MAX_NAME].rstrip(".-")
    message = event.message.encode(errors="replace")
    if len(message) > MAX_MESSAGE_BYTES:
        message = message[: MAX_MESSAGE_BYTES - 4] + b" ..."
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
        "message": message.decode(errors="ignore"),  # cut between characters
        "type": event.type,
        "source": {"component": COMPONENT},
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
    }


CAPACITY = 2000
ATTEMPTS = 6
RETRY_S, MAX_RETRY_S = 0.5, 30.0
TOO_MANY, SERVER_ERROR = 429, 500
# The object is gone, is another one, holds what we say already, or is no longer what we saw.
SETTLED = frozenset((404, 409, 410, 422))


@dataclass(eq=False, kw_only=True)
class ApiQueue:
    """Makes calls one after another, in a thread of its own.

    A full queue drops new calls. Answers 429 and 5xx and broken connections are tried again with
    growing pauses, as long as Retry-After where the server sends it. ``counts`` says what became
    of the calls: done, settled, dropped, failed; retried counts attempts.
    """

    capacity: int = CAPACITY
    retry_s: float = RETRY_S
    max_retry_s: float = MAX_RETRY_S

    def __post_init__(self) -> None:
        self.counts = Counter[str]()
        self._queue: SimpleQueue[tuple[Callable[[], Any], Callable[[], None]] | None]
        self._queue = SimpleQueue()
        self._ended = threading.Event()
        self._error = ""
        self._thread = threading.Thread(target=self._run, name="write-back", daemon=True)
        self._thread.start()

    def put(self, make: Callable[[], Any], lost: Callable[[], None] = lambda: None) -> bool:
        """Take a call, at once; False where the queue is full or at its end.

        ``lost`` is called where it could not be made, by any thread.
        """
        if self._ended.is_set() or self._queue.qsize() >= self.capacity:
            self.counts["dropped"] += 1
            lost()
            return False
        self._queue.put((make, lost))
        return True

    def stop(self, timeout_s: float = 5.0) -> None:
        """Make the calls that wait, without pauses between attempts, and end."""
        self._ended.set()
        self._queue.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (call := self._queue.get()) is not None:
            make, lost = call
            try:
                self.counts[self._made(make)] += 1
                self._error = ""
            except Exception as error:
                self.counts["failed"] += 1
                lost()
                if said(error) != self._error:
                    self._error = said(error)
                    _log.warning("write-back: %s", self._error)

    def _made(self, make: Callable[[], Any], attempt: int = 1) -> str:
        try:
            body_of(make())
            return "done"
        except FAILURES as error:
            status = error.status or 0 if isinstance(error, ApiException) else SERVER_ERROR
            if status in SETTLED:
                return "settled"
            passing = status == TOO_MANY or status >= SERVER_ERROR
            if attempt == ATTEMPTS or self._ended.is_set() or not passing:
                raise
            told = (getattr(error, "headers", None) or {}).get("Retry-After", "")
        pause_s = random.uniform(0.5, 1.0) * self.retry_s * 2.0**attempt
        if told.isascii() and told.isdigit() and len(told) < 6:
            pause_s = float(told)
        self.counts["retried"] += 1
        self._ended.wait(min(pause_s, self.max_retry_s))
        return self._made(make, attempt + 1)


class Recent:
    """Remembers the last ``most`` subjects with what was last said of each; safe in threads."""

    def __init__(self, most: int = 20_000) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._said: OrderedDict[Hashable, tuple[Hashable, float]] = OrderedDict()

    def claim(
        self, subject: Hashable, words: Hashable, *, least_s: float, repeat_s: float | None
    ) -> bool:
        """True where it is to be said now; it counts as said then.

        Other words wait for ``least_s`` after the last ones, the same for ``repeat_s`` or for ever.
        """
        now = time.monotonic()
        with self._lock:
            last = self._said.get(subject)
            if last is not None:
                wait_s = least_s if last[0] != words else repeat_s
                if wait_s is None or now - last[1] < wait_s:
                    return False
            self._said[subject] = (words, now)
            self._said.move_to_end(subject)
            if len(self._said) > self._most:
                self._said.popitem(last=False)
            return True

    def forget(self, subject: Hashable) -> None:
        """As if nothing had been said of it."""
        with self._lock:
            self._said.pop(subject, None)
