"""Which pods of an object ask for GPUs, and who has the object in hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..plain import items, mapping, text, texts
from ..pod_gpus import asked_of
from ..pod_sets import VOLCANO, WORKLOAD, PodSet, pod_sets

GROUPS = {
    "Pod": "",
    "Job": "batch",
    "PyTorchJob": "kubeflow.org",
    "JobSet": "jobset.x-k8s.io",
    "RayJob": "ray.io",
    "MPIJob": "kubeflow.org",
    "TrainJob": "trainer.kubeflow.org",
    VOLCANO: "batch.volcano.sh",
    WORKLOAD: "kueue.x-k8s.io",
}
# Controllers whose templates hold all that we would say on what they make.
OWNERS = {(group, kind) for kind, group in GROUPS.items() if kind != "Pod"}
OWNERS |= {("ray.io", "RayCluster")}


def gpu_pod_sets(
    group: str, kind: str, obj: Mapping[str, Any], resources: tuple[str, ...]
) -> tuple[PodSet, ...]:
    """The pods of an object that ask for GPUs; none for a kind that is not known.

    Kueue's Workload has no deadline here: Kueue compares ``maximumExecutionTimeSeconds`` with the
    label of the job and makes a Workload that differs anew, so the job's label is filled instead.
    """
    found = pod_sets(kind, obj) if GROUPS.get(kind) == group else None
    if found is None:
        return ()
    counted = (replace(pods, gpus=_gpus(obj, pods, resources)) for pods in found.sets)
    asking = (pods for pods in counted if pods.gpus)
    return tuple(replace(pods, deadline=None) if kind == WORKLOAD else pods for pods in asking)


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


def _gpus(obj: Mapping[str, Any], pods: PodSet, resources: tuple[str, ...]) -> int:
    template = pods.of(obj)
    annotations = {**annotations_of(obj), **annotations_of(template)}
    asked = asked_of(mapping(template, "spec"), annotations, resources)
    return 0 if asked is None else asked.gpus
