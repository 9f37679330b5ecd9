"""What the history keeps of a pod and of a Job, and how they ended.

``TIMEOUT`` is a deadline (``activeDeadlineSeconds``), ``PREEMPTED`` what another pod, a person or a
node short of memory or disk sent away, ``NODE_FAIL`` a node that went, ``CANCELLED`` an object
deleted while it ran.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from predictor.identify.grammar import stated_text
from predictor.site.history.run import JobState, Predicted, Reported, reported
from predictor.site.step_rate import parse_line
from profiles.gpus import known_name

from ..admission.limits import BASIS, DURATION, FILLED, P95, STEP
from ..nodes import GPU, GpuNode, GpuType
from ..plain import PodName, count, items, mapping, owner_of, pod_name, seconds_of, text, texts
from ..pods import KINDS
from ..workload import PodJob

ENDED = ("Succeeded", "Failed")  # phases
# status.reason of a pod, or the reason of its condition DisruptionTarget
_REASONS = {word: JobState(state) for state, of in KINDS["reasons"].items() for word in of}
# Of several pods that failed, what says most of why: the others mostly fail of it.
_TELLING = tuple(map(JobState, KINDS["telling"]))
JOB = "Job"
LEVEL = 0.95
_PAIR = re.compile(r"(\w+)=(\S+)")
PRODUCT = f"{GPU}product"
JOBSET = "jobset.sigs.k8s.io/jobset-name"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenObject:
    """What is kept of a pod or a Job; times in Unix seconds, durations in seconds.

    ``group`` names what trains together: a JobSet, a controller, or the object alone. ``state``
    is None while it goes on. ``filled_s`` is the deadline that we set, ``wanted_gpu`` the type that
    its node selector names. Of a pod also its node, the GPU it got there, and what it said of its
    steps.
    """

    kind: str
    job: PodJob
    uid: str
    group: str
    name: str
    namespace: str
    priority: str
    priority_value: int
    suspended: bool
    owner: PodName
    state: JobState | None
    submit_s: float
    start_s: float | None
    end_s: float | None
    limit_s: float | None
    filled_s: float | None
    gpus: int
    wanted_gpu: str | None
    asked: str
    pod_name: str
    predicted: Predicted | None
    node: str = ""
    gpu_type: str | None = None
    reported: Reported | None = None


def seen_pod(
    pod: Mapping[str, Any], job: PodJob, node: GpuNode | None, deleted_s: float | None
) -> SeenObject:
    """A pod with GPUs, on a node; ``deleted_s`` is when it was deleted, None while it is there."""
    start_s = unix_s(text(pod, "status", "startTime"))
    # The step report that a container left as its termination message.
    messages = (text(ended, "message") for ended in _ended_containers(pod))
    lines = (line for message in messages for line in reversed(message.splitlines()))
    report = next((found for line in lines if (found := parse_line(line)) is not None), None)
    state, ends = pod_state(pod, deleted=deleted_s is not None), [_end_s(pod, deleted_s), start_s]
    return _seen(
        pod,
        job,
        pod,
        state,
        start_s,
        ends,
        gpus=job.gpus_per_pod,
        node=text(pod, "spec", "nodeName"),
        gpu_type=None if node is None else gpu_name(node.type_for(job.resource)),
        reported=None if report is None else reported(report, start_s),
    )


def seen_job(obj: Mapping[str, Any], job: PodJob, deleted_s: float | None) -> SeenObject:
    """A Job whose pods have GPUs."""
    held = conditions(obj)
    state = None if deleted_s is None else JobState.CANCELLED
    if "Complete" in held:
        state = JobState.COMPLETED
    elif "Failed" in held:
        state = _REASONS.get(text(held["Failed"], "reason"), JobState.FAILED)
    start_s = unix_s(text(obj, "status", "startTime"))
    done_s = unix_s(text(obj, "status", "completionTime"))
    failed_s = unix_s(text(held.get("Failed"), "lastTransitionTime"))
    ends, template = [done_s, failed_s, deleted_s, start_s], mapping(obj, "spec", "template")
    return _seen(obj, job, template, state, start_s, ends, gpus=job.gpus)


def _seen(
    obj: Mapping[str, Any],
    job: PodJob,
    template: Mapping[str, Any],
    state: JobState | None,
    start_s: float | None,
    ends: list[float | None],
    **more: Any,
) -> SeenObject:
    labels, annotations = (texts(obj, "metadata", part) for part in ("labels", "annotations"))
    limits = (count(holder, "spec", "activeDeadlineSeconds") for holder in (obj, template))
    filled_s = count(annotations, FILLED)
    jobset, owner, who = labels.get(JOBSET), owner_of(obj), pod_name(obj)
    grouped = owner.uid if template is obj else ""  # a Job stands for itself, even a CronJob's
    generated = text(obj, "metadata", "generateName").rstrip("-")
    return SeenObject(
        kind="Pod" if template is obj else JOB,
        job=job,
        uid=who.uid,
        group=f"{who.namespace}/{jobset}" if jobset else grouped or who.uid,
        # A name that the next job of its kind has, too.
        name=jobset or owner.name or generated or text(obj, "metadata", "name"),
        namespace=who.namespace,
        priority=text(template, "spec", "priorityClassName"),
        priority_value=count(template, "spec", "priority") or 0,
        suspended=mapping(obj, "spec").get("suspend") is True,
        owner=owner,
        state=state,
        submit_s=unix_s(text(obj, "metadata", "creationTimestamp")) or 0.0,
        start_s=start_s,
        end_s=None if state is None else next((s for s in ends if s is not None), None),
        limit_s=min((float(s) for s in limits if s), default=None),
        filled_s=None if filled_s is None else float(filled_s),
        wanted_gpu=gpu_called(job.node_selector.get(PRODUCT)),
        asked=stated_text(job.stated),
        pod_name=who.name,
        predicted=_predicted(annotations, filled_s),
        **more,
    )


def _predicted(annotations: Mapping[str, str], filled_s: int | None) -> Predicted | None:
    """The prediction on an object, None without one; ``filled_s`` is the deadline we set.

    The user can change annotations: what cannot be read counts as absent.
    """
    median_s, upper_s = (seconds_of(annotations.get(name, "")) for name in (DURATION, P95))
    try:
        step_s: float | None = float(annotations.get(STEP, ""))
    except ValueError:
        step_s = None
    if step_s is not None and not 0 < step_s < math.inf:
        step_s = None
    if step_s is None and median_s is None:
        return None
    basis = dict(_PAIR.findall(annotations.get(BASIS, "")))
    return Predicted(
        step_s=step_s,
        median_s=median_s,
        upper_s=upper_s,
        level=None if upper_s is None else LEVEL,
        gpu=gpu_called(basis.get("gpu")),
        gpus=count(basis, "gpus"),
        version=basis.get("predictor"),
        tier=basis.get("tier"),
        limit_s=None if filled_s is None else float(filled_s),
    )


def gpu_called(product: str | None) -> str | None:
    """The name that predictions use, or the same where no GPU is known by it."""
    return product and known_name(product)


def gpu_name(kind: GpuType | None) -> str | None:
    """The name that predictions use; the label where no whole GPU is known by it."""
    if kind is None:
        return None
    return kind.gpu.name if kind.gpu is not None and kind.whole else kind.product


def pod_state(pod: Mapping[str, Any], *, deleted: bool = False) -> JobState | None:
    """How a pod ended; None for one that goes on, unless it is ``deleted``."""
    phase = text(pod, "status", "phase")
    if phase not in ENDED and not deleted:
        return None
    if phase == "Succeeded":
        return JobState.COMPLETED
    reasons = [text(ended, "reason") for ended in _ended_containers(pod)]
    reasons.append(text(pod, "status", "reason"))
    reasons.append(text(conditions(pod).get("DisruptionTarget"), "reason"))
    known = (_REASONS[reason] for reason in reasons if reason in _REASONS)
    return next(known, JobState.FAILED if phase == "Failed" else JobState.CANCELLED)


def together(states: Iterable[JobState]) -> JobState:
    """How pods that trained together ended."""
    found = set(states)
    return next((state for state in _TELLING if state in found), JobState.COMPLETED)


def conditions(obj: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The conditions of an object that hold, by type."""
    held = (c for c in items(obj, "status", "conditions") if text(c, "status") == "True")
    return {text(condition, "type"): condition for condition in held}


def unix_s(stamp: str) -> float | None:
    """An RFC 3339 time of the API in Unix seconds; None for another text."""
    try:
        return datetime.fromisoformat(stamp).timestamp() if stamp else None
    except ValueError:
        return None


def _ended_containers(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What is told of each container that ended; those that others wait for come last."""
    kinds = ("containerStatuses", "initContainerStatuses")
    for status in (status for kind in kinds for status in items(pod, "status", kind)):
        for kept in ("state", "lastState"):
            if found := mapping(status, kept, "terminated"):
                yield found
                break


def _end_s(pod: Mapping[str, Any], deleted_s: float | None) -> float | None:
    """When a pod ended: when its last container did, if all of them tell.

    Of one whose node went, or that was deleted, its last condition tells, or what deleted it.
    """
    finished = _stamps(_ended_containers(pod), "finishedAt")
    statuses = items(pod, "status", "containerStatuses")
    if finished and all(text(s, "state", "terminated", "finishedAt") for s in statuses):
        return max(finished)
    if deleted_s is not None and text(pod, "status", "phase") not in ENDED:
        return deleted_s
    changed = _stamps(items(pod, "status", "conditions"), "lastTransitionTime")
    return max((*finished, *changed), default=deleted_s)


def _stamps(told: Iterable[Any], name: str) -> list[float]:
    stamps = (unix_s(text(one, name)) for one in told)
    return [stamp for stamp in stamps if stamp is not None]
