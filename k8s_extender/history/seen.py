"""What the history keeps of a pod and of a Job, from what the API server says of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from predictor.identify.grammar import stated_text
from predictor.identify.rules import Rules
from predictor.site.ended_job import JobState
from predictor.site.history.run import Predicted, Reported, reported
from predictor.site.step_rate import parse_line
from profiles.errors import UnknownGpuError
from profiles.gpus import find_gpu

from ..admission.limits import FILLED
from ..admission.notes import BASIS, DURATION, P95, STEP
from ..config import Config
from ..estimate import ran_signature
from ..node_labels import GPU
from ..plain import count, items, mapping, seconds_of, text, texts
from ..records import GpuNode, GpuType, PodJob, PodName, owner_of, pod_name
from ..workload import QUEUES, template_job
from .states import ENDED, conditions, ended_containers, job_state, pod_state, unix_s

LEVEL = 0.95
_PAIR = re.compile(r"(\w+)=(\S+)")


def predicted(annotations: Mapping[str, str], filled_s: int | None) -> Predicted | None:
    """The prediction on an object, None without one; ``filled_s`` is the deadline we set.

    The user can change annotations: what cannot be read counts as absent.
    """
    step_s = _number(annotations.get(STEP, ""))
    median_s, upper_s = (seconds_of(annotations.get(name, "")) for name in (DURATION, P95))
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
    try:
        return None if product is None else find_gpu(product).name
    except UnknownGpuError:
        return product


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < math.inf else None


PRODUCT = f"{GPU}product"
JOBSET = "jobset.sigs.k8s.io/jobset-name"
NodeOf = Callable[[str], GpuNode | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenObject:
    """What a pod and a Job have in common; times in Unix seconds, durations in seconds.

    ``group`` names what trains together: a JobSet, a controller, or the object alone. ``state``
    is None while it goes on. ``filled_s`` is the deadline that we set, ``wanted_gpu`` the type that
    its node selector names.
    """

    uid: str
    group: str
    name: str
    namespace: str
    queue: str
    priority: str
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
    script: str
    pod_name: str
    origin: str
    predicted: Predicted | None


@dataclass(frozen=True, slots=True)
class SeenPod:
    """A pod with its node, the GPU it got there, and what it said of its steps."""

    of: SeenObject
    node: str
    gpu_type: str | None
    reported: Reported | None


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads pods and Jobs by a configuration; ``node_of`` knows the nodes by name.

    ``deleted_s`` is when an object was deleted, None while it is there.
    """

    config: Config
    rules: Rules | None
    node_of: NodeOf

    def pod(self, pod: Mapping[str, Any], deleted_s: float | None = None) -> SeenPod | None:
        """A pod with GPUs, else None."""
        job = template_job("Pod", pod, self.config, self.rules)
        if job is None:
            return None
        name, start_s = text(pod, "spec", "nodeName"), unix_s(text(pod, "status", "startTime"))
        state, node = pod_state(pod, deleted=deleted_s is not None), self.node_of(name)
        ends = [_end_s(pod, deleted_s), start_s]
        return SeenPod(
            _seen(pod, job, pod, state, start_s, ends, job.gpus_per_pod),
            name,
            None if node is None else gpu_name(node.type_for(job.resource)),
            _reported(pod, start_s),
        )

    def job(self, job: Mapping[str, Any], deleted_s: float | None = None) -> SeenObject | None:
        """A Job whose pods have GPUs, else None."""
        made = template_job("Job", job, self.config, self.rules)
        if made is None:
            return None
        failed = conditions(job).get("Failed")
        start_s = unix_s(text(job, "status", "startTime"))
        stamps = (text(job, "status", "completionTime"), text(failed, "lastTransitionTime"))
        state = job_state(job, deleted=deleted_s is not None)
        template = mapping(job, "spec", "template")
        ends = [*map(unix_s, stamps), deleted_s, start_s]
        return _seen(job, made, template, state, start_s, ends, made.gpus)


def _seen(
    obj: Mapping[str, Any],
    job: PodJob,
    template: Mapping[str, Any],
    state: JobState | None,
    start_s: float | None,
    ends: list[float | None],
    gpus: int,
) -> SeenObject:
    labels, annotations = (texts(obj, "metadata", part) for part in ("labels", "annotations"))
    limits = (count(holder, "spec", "activeDeadlineSeconds") for holder in (obj, template))
    filled_s = count(annotations, FILLED)
    stated, jobset, owner = job.stated, labels.get(JOBSET), owner_of(obj)
    grouped = owner.uid if template is obj else ""  # a Job stands for itself, even a CronJob's
    who = pod_name(obj)
    return SeenObject(
        uid=who.uid,
        group=f"{who.namespace}/{jobset}" if jobset else grouped or who.uid,
        name=jobset or _name(obj, owner),
        namespace=who.namespace,
        queue=next((labels[name] for name in QUEUES if labels.get(name)), ""),
        priority=text(template, "spec", "priorityClassName"),
        owner=owner,
        state=state,
        submit_s=unix_s(text(obj, "metadata", "creationTimestamp")) or 0.0,
        start_s=start_s,
        end_s=None if state is None else next((s for s in ends if s is not None), None),
        limit_s=min((float(s) for s in limits if s), default=None),
        filled_s=None if filled_s is None else float(filled_s),
        gpus=gpus,
        wanted_gpu=gpu_called(job.node_selector.get(PRODUCT)),
        asked=stated_text(stated),
        script=ran_signature(template, job.resource),
        pod_name=who.name,
        origin=stated.origins.get("model") or next(iter(stated.origins.values()), ""),
        predicted=predicted(annotations, filled_s),
    )


def _name(obj: Mapping[str, Any], owner: PodName) -> str:
    """A name that the next job of its kind has, too."""
    if owner.name:
        return owner.name
    generated = text(obj, "metadata", "generateName")
    return generated.rstrip("-") or text(obj, "metadata", "name")


def _end_s(pod: Mapping[str, Any], deleted_s: float | None) -> float | None:
    """When a pod ended: when its last container did, if all of them tell.

    The node of another is gone, or it was deleted while it ran: its last condition tells, or what
    deleted it.
    """
    finished = _stamps(ended_containers(pod), "finishedAt")
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


def gpu_name(kind: GpuType | None) -> str | None:
    """The name that predictions use; the label where no whole GPU is known by it."""
    if kind is None:
        return None
    return kind.gpu.name if kind.gpu is not None and kind.whole else kind.product


def _reported(pod: Mapping[str, Any], start_s: float | None) -> Reported | None:
    """The step report that a container left as its termination message."""
    messages = (text(ended, "message") for ended in ended_containers(pod))
    lines = (line for message in messages for line in reversed(message.splitlines()))
    report = next((found for line in lines if (found := parse_line(line)) is not None), None)
    return None if report is None else reported(report, start_s)
