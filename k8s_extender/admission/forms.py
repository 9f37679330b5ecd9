"""Where a kind of object keeps its pod templates and its deadline.

Kueue's Workload has no deadline here: Kueue compares ``maximumExecutionTimeSeconds`` with the label
of the job and makes a Workload that differs anew, so the label of the job is filled instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..plain import items, mapping, text, texts
from ..pod_gpus import asked_of

Path = tuple[str | int, ...]

DEADLINE = "activeDeadlineSeconds"
WORKLOAD = "Workload"


@dataclass(frozen=True, slots=True)
class Part:
    """A pod template of an object, and where the deadline of its pods stands, if anywhere.

    The ``template`` of a pod is the pod itself, at the empty path.
    """

    template: Path
    deadline: Path | None


def parts_of(
    group: str, kind: str, obj: Mapping[str, Any], resources: tuple[str, ...]
) -> tuple[Part, ...]:
    """The templates of an object whose pods ask for GPUs; none for a kind that is not known."""
    find = _FORMS.get((group, kind))
    found = () if find is None else tuple(find(obj))
    return tuple(part for part in found if _has_gpus(obj, reach(obj, part.template), resources))


def reach(obj: Any, path: Path) -> Any:
    """What lies at a path of keys and indexes, or None."""
    for step in path:
        if isinstance(step, int):
            obj = obj[step] if isinstance(obj, list) and step < len(obj) else None
        else:
            obj = obj.get(step) if isinstance(obj, Mapping) else None
    return obj


def annotations_of(obj: Any) -> dict[str, str]:
    """The annotations of an object or a pod template."""
    return texts(obj, "metadata", "annotations")


def labels_of(obj: Any) -> dict[str, str]:
    """The labels of an object or a pod template."""
    return texts(obj, "metadata", "labels")


def controller(obj: Mapping[str, Any]) -> str:
    """The kind of the object's controller; empty where it has none."""
    owners = items(obj, "metadata", "ownerReferences")
    return next((text(o, "kind") for o in owners if mapping(o).get("controller") is True), "")


def left_to_owner(kind: str, owner: str) -> bool:
    """Whether everything was said on the owner already, or is its own business."""
    return owner in OWNERS or (kind == WORKLOAD and bool(owner))


def _has_gpus(obj: Mapping[str, Any], template: Any, resources: tuple[str, ...]) -> bool:
    annotations = {**annotations_of(obj), **annotations_of(template)}
    return asked_of(mapping(template, "spec"), annotations, resources) is not None


def _pod(obj: Mapping[str, Any]) -> Iterator[Part]:
    yield Part((), ("spec", DEADLINE))


def _job(obj: Mapping[str, Any]) -> Iterator[Part]:
    yield Part(("spec", "template"), ("spec", DEADLINE))


def _pytorch_job(obj: Mapping[str, Any]) -> Iterator[Part]:
    for name in mapping(obj, "spec", "pytorchReplicaSpecs"):
        template = ("spec", "pytorchReplicaSpecs", name, "template")
        yield Part(template, ("spec", "runPolicy", DEADLINE))


def _job_set(obj: Mapping[str, Any]) -> Iterator[Part]:
    for i in range(len(items(obj, "spec", "replicatedJobs"))):
        job: Path = ("spec", "replicatedJobs", i, "template", "spec")
        yield Part((*job, "template"), (*job, DEADLINE))


def _ray_job(obj: Mapping[str, Any]) -> Iterator[Part]:
    cluster: Path = ("spec", "rayClusterSpec")
    yield Part((*cluster, "headGroupSpec", "template"), ("spec", DEADLINE))
    for i in range(len(items(obj, "spec", "rayClusterSpec", "workerGroupSpecs"))):
        yield Part((*cluster, "workerGroupSpecs", i, "template"), ("spec", DEADLINE))


def _workload(obj: Mapping[str, Any]) -> Iterator[Part]:
    for i in range(len(items(obj, "spec", "podSets"))):
        yield Part(("spec", "podSets", i, "template"), None)


_FORMS: Mapping[tuple[str, str], Callable[[Mapping[str, Any]], Iterator[Part]]] = {
    ("", "Pod"): _pod,
    ("batch", "Job"): _job,
    ("kubeflow.org", "PyTorchJob"): _pytorch_job,
    ("jobset.x-k8s.io", "JobSet"): _job_set,
    ("ray.io", "RayJob"): _ray_job,
    ("kueue.x-k8s.io", WORKLOAD): _workload,
}
# Controllers whose templates hold all that we would say on what they make.
OWNERS = frozenset(kind for _, kind in _FORMS) - {"Pod"} | {"RayCluster"}
