"""What is known once pods are bound: deadlines of ours follow, and who waits for which GPUs.

A Job's deadline runs from its start, the wait for nodes included, and may be changed at any time,
as that of a PyTorchJob or RayJob; that of a bare pod runs from its own start, and may only be
lowered. Those of other kinds are not changed: their controllers read them once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any, NamedTuple

from kubernetes import client as api

from .admission.limits import FILLED, forecast
from .admission.review import gpu_pod_sets
from .config import PREFIX
from .decide import Decider, GpuCandidates
from .history.seen import conditions, pod_state, unix_s
from .plain import JsonPath, PodName, count, items, mapping, owner_of, pod_name, text, texts
from .pods import GROUPS, JOBSET_REPLICAS, pod_sets
from .watching import KubeObject, ObjectWatch, WatchGroup
from .workload import DEADLINE, PodJob, template_job

_log = logging.getLogger(__name__)
# The GPU types that a deadline of ours was brought to.
BASIS = f"{PREFIX}deadline-gpu"
# Of its time, what a Job that waits has left when its deadline is moved on.
LEFT = 0.5
OVER = frozenset(("Complete", "Succeeded", "Failed", "FailureTarget", "SuccessCriteriaMet"))
OWNERS = frozenset(("Job", "PyTorchJob", "RayCluster"))
LIMIT: JsonPath = ("spec", "activeDeadlineSeconds")
LIMITS: dict[str, JsonPath] = {"PyTorchJob": ("spec", "runPolicy", "activeDeadlineSeconds")}
# Jobs looked at in one go, for meanwhile nobody is answered.
AT_ONCE = 20
AGAIN_S = 60.0


@dataclass(frozen=True, slots=True)
class DeadlineChange:
    """A deadline of ours that is to become another one; ``basis`` are the GPU types it is for."""

    name: PodName
    old_s: int
    new_s: int
    basis: str

    @property
    def patch(self) -> list[dict[str, Any]]:
        """A JSON patch that fails where somebody else has changed the deadline."""
        place = "/".join(("", *map(str, LIMITS.get(self.name.kind, LIMIT))))
        notes = "/metadata/annotations/"
        told = {FILLED: str(self.new_s)} | ({BASIS: self.basis} if self.basis else {})
        return [
            {"op": "test", "path": "/metadata/uid", "value": self.name.uid},
            {"op": "test", "path": place, "value": self.old_s},
            {"op": "replace", "path": place, "value": self.new_s},
            *(
                {"op": "add", "path": notes + key.replace("/", "~1"), "value": value}
                for key, value in told.items()
            ),
        ]


class _Bound(NamedTuple):
    """Where a pod runs, and since when in Unix seconds."""

    node: str
    start_s: float


class BoundPods(WatchGroup):
    """Watches pods, Jobs and ``kinds``, for deadlines that we filled and for pods that wait.

    Its threads only take note; `changes` and `waiting` are asked by the thread that decides. Needs
    the verbs list and watch on what it watches.
    """

    def __init__(self, client: api.ApiClient, kinds: Sequence[str] = (), **options: Any) -> None:
        self._lock = threading.Lock()
        # Those whose deadline we filled, by kind and uid.
        self._ours: dict[str, dict[str, KubeObject]] = {"Job": {}, "Pod": {}}
        self._bound: dict[str, dict[str, _Bound]] = {}  # pods by their owner, or their own uid
        self._waiting: dict[str, KubeObject] = {}
        self._examined: dict[str, object] = {}
        self.gangs: dict[str, int] = {}  # pods that train together, by the uid of their Job
        core, batch = api.CoreV1Api(client), api.BatchV1Api(client)
        listed = api.CustomObjectsApi(client).list_cluster_custom_object
        lists: dict[str, Any] = {"Job": batch.list_job_for_all_namespaces}
        lists |= {kind: partial(listed, GROUPS[kind], "v1", f"{kind.lower()}s") for kind in kinds}
        self._watches = [
            ObjectWatch(core.list_pod_for_all_namespaces, self._all_pods, self.pod, **options)
        ]
        for kind, call in lists.items():
            every, one = partial(self._all_jobs, kind), partial(self.job, kind)
            self._watches.append(ObjectWatch(call, every, one, **options))

    def job(self, kind: str, job: KubeObject, deleted_s: float | None = None) -> None:
        """Take note of a Job, or of what an operator runs like one."""
        ended = OVER & {*conditions(job), text(job, "status", "jobDeploymentStatus")}  # the Ray way
        there = not ended and deleted_s is None
        ours = there and _filled_s(kind, job) is not None
        with self._lock:
            _note(self._ours.setdefault(kind, {}), job, job if ours else None)
            if kind == "Job":
                _note(self.gangs, job, _gang(job) if there else None)

    def pod(self, pod: KubeObject, deleted_s: float | None = None) -> None:
        """Take note of a pod."""
        over = deleted_s is not None or pod_state(pod) is not None
        owner, node = owner_of(pod), text(pod, "spec", "nodeName")
        start_s = unix_s(text(pod, "status", "startTime"))
        unplaced = any(
            text(c, "type") == "PodScheduled" and text(c, "reason") == "Unschedulable"
            for c in items(pod, "status", "conditions")
        )
        runs = not over and bool(node) and (not owner.kind or owner.kind in OWNERS)
        if owner.kind not in ("", "Job"):  # what directs the others may have no GPU
            asked = [mapping(c, "resources", "limits") for c in items(pod, "spec", "containers")]
            runs = runs and any("/" in resource for limits in asked for resource in limits)
        ours = not over and not owner.kind and _filled_s("Pod", pod) is not None
        ray = f"{owner.namespace}/{owner.name}" if owner.kind == "RayCluster" else ""
        key = ray or owner.uid or pod_name(pod).uid  # a RayJob knows its cluster by name
        with self._lock:
            group = self._bound.setdefault(key, {})
            _note(group, pod, _Bound(node, start_s) if runs and start_s is not None else None)
            if not group:
                del self._bound[key]
            _note(self._ours["Pod"], pod, pod if ours else None)
            _note(self._waiting, pod, pod if unplaced and not over and not node else None)

    def waiting(self, known: Decider) -> Sequence[PodJob]:
        """The jobs of pods for which no node was found; those that are alike once."""
        with self._lock:
            pods = list(self._waiting.values())
        jobs = map(known.job_of, pods)
        return list({id(job): job for job in jobs if job is not None}.values())

    def changes(self, known: Decider, now_s: float) -> Iterator[DeadlineChange]:
        """The deadlines that are to be changed at a moment (Unix seconds)."""
        with self._lock:
            held = [(kind, obj) for kind, ours in self._ours.items() for obj in ours.values()]
            placed = {uid: list(pods.values()) for uid, pods in self._bound.items()}
            uids = {pod_name(obj).uid for _, obj in held}
            self._examined = {uid: by for uid, by in self._examined.items() if uid in uids}
        looked = 0
        for kind, obj in held:
            uid, cluster = pod_name(obj).uid, text(obj, "status", "rayClusterName")
            pods = placed.get(f"{pod_name(obj).namespace}/{cluster}" if cluster else uid, [])
            if len(pods) < _at_once(kind, obj, known):
                pods = []  # not all of them run yet
            filled_s, start_s = _filled_s(kind, obj) or 0, unix_s(text(obj, "status", "startTime"))
            by = (tuple(pods), filled_s, None if pods else now_s // AGAIN_S)
            # Of a Job that waits much of the time has gone by; a pod's has not begun.
            late = start_s is not None and start_s + filled_s - now_s < LEFT * filled_s
            due = bool(pods) or late
            if looked == AT_ONCE or not due or self._examined.get(uid) == by:
                continue
            looked += 1
            try:
                change = _change(kind, obj, pods, known, now_s)
            except Exception:
                _log.exception("the deadline of %s is not followed", pod_name(obj).name)
                change = None
            self._examined[uid] = by
            if change is not None:
                yield change

    def forget(self, change: DeadlineChange) -> None:
        """A change that could not be made is looked at again."""
        with self._lock:
            self._examined.pop(change.name.uid, None)

    def _all_pods(self, found: Iterable[KubeObject]) -> None:
        with self._lock:
            for where in (self._ours["Pod"], self._bound, self._waiting):
                where.clear()
        for pod in found:
            self.pod(pod)

    def _all_jobs(self, kind: str, found: Iterable[KubeObject]) -> None:
        with self._lock:
            self._ours[kind] = {}
            if kind == "Job":
                self.gangs.clear()
        for job in found:
            self.job(kind, job)


def _note(where: dict[str, Any], obj: KubeObject, value: object | None) -> None:
    if value is None:
        where.pop(pod_name(obj).uid, None)
    else:
        where[pod_name(obj).uid] = value


def _gang(job: KubeObject) -> int | None:
    """Pods of an indexed Job, and of its likes in a JobSet; None where each trains for itself."""
    made = pod_sets("Job", job)
    pods = sum(part.count for part in made.sets) if made else 1
    pods *= count(texts(job, "metadata", "labels"), JOBSET_REPLICAS) or 1
    return pods if pods > 1 else None


def _filled_s(kind: str, obj: KubeObject) -> int | None:
    """The deadline that stands as we filled it; None for a user's own, and for what one wishes."""
    annotations = texts(obj, "metadata", "annotations")
    filled_s = count(annotations, FILLED)
    ours = DEADLINE not in annotations and count(obj, *LIMITS.get(kind, LIMIT)) == filled_s
    return filled_s if ours else None


def _at_once(kind: str, obj: KubeObject, known: Decider) -> int:
    """How many pods run at a time."""
    if kind not in ("Job", "Pod"):
        resources = known.config.hardware.resources
        return sum(part.count for part in gpu_pod_sets(GROUPS[kind], kind, obj, resources))
    parallel = count(obj, "spec", "parallelism") or 1
    return min(parallel, count(obj, "spec", "completions") or parallel)


def _change(
    kind: str, obj: KubeObject, pods: Sequence[_Bound], known: Decider, now_s: float
) -> DeadlineChange | None:
    """What becomes of a deadline: the time waited, and the limit on the GPUs it may get, or got."""
    job, old_s = template_job(kind, obj, known.config, known.rules), _filled_s(kind, obj)
    began_s = unix_s(text(obj, "status", "startTime"))
    # Others may land elsewhere.
    in_turn = (count(obj, "spec", "completions") or 1) > _at_once(kind, obj, known)
    if job is None or old_s is None or began_s is None or in_turn:
        return None
    where = known.candidates(job)
    if pods:
        nodes = known.nodes()
        got = [nodes[pod.node].type_for(job.resource) for pod in pods if pod.node in nodes]
        types = tuple(dict.fromkeys(one for one in got if one is not None))
        where = GpuCandidates(types, certain=len(got) == len(pods) and None not in got)
    basis = ",".join(sorted({"-".join(one.product.split()) for one in where.types}))
    like = known.like(replace(job, deadline_s=None), obj, pod_name(obj).name)
    found = forecast(known, job, where, like=like)
    # Pods that run are where they are, also on what we would have refused them.
    limit_s = (replace(found, blocked="") if pods else found).deadline_s
    if limit_s is None or (pods and texts(obj, "metadata", "annotations").get(BASIS) == basis):
        return None
    since_s = max(pod.start_s for pod in pods) if pods else now_s
    new_s = limit_s + (ceil(max(0.0, since_s - began_s)) if kind != "Pod" else 0)
    if new_s == old_s or (kind == "Pod" and new_s > old_s) or (not pods and new_s < old_s):
        return None
    version = f"{GROUPS[kind]}/v1".lstrip("/")
    name = replace(pod_name(obj), kind=kind, api_version=version)
    return DeadlineChange(name, old_s, new_s, basis if pods else "")
