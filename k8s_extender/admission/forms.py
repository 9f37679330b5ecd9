"""Where a kind of object keeps its pod templates and its deadline.

Kueue's Workload has no deadline here: Kueue compares ``maximumExecutionTimeSeconds`` with the label
of the job and makes a Workload that differs anew, so the label of the job is filled instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..plain import count, items, mapping, text, texts
from ..pod_gpus import asked_of

Path = tuple[str | int, ...]

DEADLINE = "activeDeadlineSeconds"
WORKLOAD = "Workload"


@dataclass(frozen=True, slots=True)
class Part:
    """A pod template of an object, and where the deadline of its pods stands, if anywhere.

    The ``template`` of a pod is the pod itself, at the empty path. ``gpus`` are those of one pod,
    ``runs`` how many times in a row the deadline lets pods run: a Job with more completions than
    parallelism starts pods where others have ended.
    """

    template: Path
    deadline: Path | None
    gpus: int = 0
    runs: int = 1


def parts_of(
    group: str, kind: str, obj: Mapping[str, Any], resources: tuple[str, ...]
) -> tuple[Part, ...]:
    """The templates of an object whose pods ask for GPUs; none for a kind that is not known."""
    find = _FORMS.get((group, kind))
    found = () if find is None else find(obj)
    asked = (replace(part, gpus=_gpus(obj, reach(obj, part.template), resources)) for part in found)
    return tuple(part for part in asked if part.gpus)


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


def controller(obj: Mapping[str, Any]) -> tuple[str, str] | None:
    """Group and kind of the object's controller; None where it has none."""
    owners = items(obj, "metadata", "ownerReferences")
    owner = next((o for o in owners if mapping(o).get("controller") is True), None)
    if owner is None:
        return None
    group, slash, _ = text(owner, "apiVersion").partition("/")
    return group if slash else "", text(owner, "kind")


def left_to_owner(kind: str, owner: tuple[str, str] | None) -> bool:
    """Whether everything was said on the owner already, or is its own business."""
    return owner in OWNERS or (kind == WORKLOAD and owner is not None)


def _gpus(obj: Mapping[str, Any], template: Any, resources: tuple[str, ...]) -> int:
    annotations = {**annotations_of(obj), **annotations_of(template)}
    asked = asked_of(mapping(template, "spec"), annotations, resources)
    return 0 if asked is None else asked.gpus


def _runs(job: Any) -> int:
    """Of the spec of a Job: its completions over what it runs at once."""
    completions = count(job, "completions") or 1
    return -(-completions // (count(job, "parallelism") or 1))


def _pod(obj: Mapping[str, Any]) -> Iterator[Part]:
    yield Part((), ("spec", DEADLINE))


def _job(obj: Mapping[str, Any]) -> Iterator[Part]:
    yield Part(("spec", "template"), ("spec", DEADLINE), runs=_runs(reach(obj, ("spec",))))


def _pytorch_job(obj: Mapping[str, Any]) -> Iterator[Part]:
    for name in mapping(obj, "spec", "pytorchReplicaSpecs"):
        template = ("spec", "pytorchReplicaSpecs", name, "template")
        yield Part(template, ("spec", "runPolicy", DEADLINE))


def _job_set(obj: Mapping[str, Any]) -> Iterator[Part]:
    for i in range(len(items(obj, "spec", "replicatedJobs"))):
        job: Path = ("spec", "replicatedJobs", i, "template", "spec")
        yield Part((*job, "template"), (*job, DEADLINE), runs=_runs(reach(obj, job)))


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
OWNERS = frozenset(_FORMS) - {("", "Pod")} | {("ray.io", "RayCluster")}
