"""Predictions and refusals, told on the pods themselves; nothing waits for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from kubernetes.client import ApiClient, CoreV1Api

from . import pod_events
from .admission import Reviewed, ReviewOutcome
from .admission.notes import predicted
from .api_calls import CALL_TIMEOUT_S
from .api_queue import ApiCall, ApiQueue
from .config import PREFIX
from .decide import Decider
from .durations import go_duration
from .estimate import TypeEstimate
from .pod_events import PodEvent
from .pod_name import PodName
from .recent import Recent
from .records import FilterResult, GpuType, PodJob

BY_GPU = f"{PREFIX}predicted-by-gpu"
# Each change of a waiting pod wakes the scheduler, which asks us again.
ANNOTATION_PAUSE_S = 60.0
EVENT_PAUSE_S = 60.0
# Events live for an hour by default.
EVENT_REPEAT_S = 1800.0
MAX_PROBLEMS = 4
MAX_TYPES = 16
# Group, resource and verb of what is called here, for RBAC.
PERMISSIONS = (("", "pods", "patch"), ("", "events", "create"))


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
        self._version = version
        self._recent = Recent()
        self.queue = ApiQueue() if queue is None else queue

    def filtered(self, decider: Decider, pod: PodName, job: PodJob, result: FilterResult) -> None:
        """Take note of a filter's result; returns without a call to the API server."""
        if not (pod.uid and pod.name and pod.namespace):
            return
        annotate, observed = decider.config.annotate, decider.config.mode == "observe"
        if annotate.events and (counts := Counter(result.refused.values())):
            self._tell(pod, pod_events.refused(counts, result, observed=observed))
        if observed or not (annotate.pods or annotate.events):
            return
        found = decider.estimates(job, _types(decider, job, result.passed))
        told = [e for e in found if e.step_s is not None and not e.assumed]
        if annotate.pods and told:
            self._annotate(pod, told)
        if annotate.events and (texts := _unclear(job, found, told)):
            self._tell(pod, pod_events.unclear(texts))

    def reviewed(self, reviewed: Reviewed) -> None:
        """Tell what a new object would have been given."""
        told = bool(reviewed.placed or reviewed.deadline_s)
        if reviewed.outcome is ReviewOutcome.OBSERVED and told and reviewed.subject.name:
            self._tell(reviewed.subject, pod_events.would(reviewed.order, reviewed.deadline_s))

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
                pod.name,
                pod.namespace,
                {"metadata": metadata},
                _preload_content=False,
                _request_timeout=CALL_TIMEOUT_S,
            ),
        )

    def _tell(self, pod: PodName, event: PodEvent) -> None:
        body = pod_events.body(event, pod)
        self._once(
            (pod.uid or pod, event.reason),
            event.subject,
            EVENT_PAUSE_S,
            EVENT_REPEAT_S,
            lambda: self._api.create_namespaced_event(
                pod.namespace, body, _preload_content=False, _request_timeout=CALL_TIMEOUT_S
            ),
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
            self.queue.put(ApiCall(make, lambda: self._recent.forget(subject)))


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


def _types(decider: Decider, job: PodJob, names: Sequence[str]) -> list[GpuType]:
    return sorted(decider.types(job, names), key=lambda k: (k.product, k.count, k.replicas))


def _unclear(
    job: PodJob, found: Sequence[TypeEstimate], told: Sequence[TypeEstimate]
) -> tuple[str, ...]:
    """What of a job that speaks to us cannot be used; nothing for a job that does not."""
    problems = [f"{p.origin}: {p.text}" for p in job.stated.problems[:MAX_PROBLEMS]]
    lacking = {e.unclear for e in found} if found and not told else set()
    if not (job.stated.values or job.stated.unknown_model or problems):
        return ()
    return (*sorted(lacking), *problems)
