"""Which GPU types the pods of a job may land on, as far as it is known before scheduling."""

from __future__ import annotations

from dataclasses import dataclass

from profiles.errors import UnknownGpuError
from profiles.gpus import find_gpu

from .config import Hardware
from .node_labels import gpu_node
from .records import GpuNode, GpuType, PodJob
from .selectors import bears, selects
from .type_index import NodeTable

SHARED = "-SHARED"


@dataclass(frozen=True, slots=True)
class GpuCandidates:
    """GPU types; ``certain`` is False where they are only what the user says of the GPU."""

    types: tuple[GpuType, ...]
    certain: bool = True


def candidates(job: PodJob, nodes: NodeTable, hardware: Hardware) -> GpuCandidates:
    """The types of the nodes that a job selects; without one, what selector or user tell.

    Nodes with fewer GPUs than a pod asks for do not count, nor those that take no pods or have a
    taint the pod does not bear, unless there are no others. A selector that names a GPU names it
    for nodes that an autoscaler is yet to add, too.
    """
    found = _of_nodes(job, nodes)
    now = [kind for node, kind in found if node.takes_pods and bears(job, node.taints)]
    kinds = {id(kind): kind for kind in now or (kind for _, kind in found)}
    if kinds:
        return GpuCandidates(tuple(dict.fromkeys(kinds.values())))
    selected = _of_selector(job, hardware)
    if selected is not None:
        return GpuCandidates((selected,))
    return GpuCandidates(_stated(job), certain=False)


def _of_nodes(job: PodJob, nodes: NodeTable) -> list[tuple[GpuNode, GpuType]]:
    found = ((node, node.type_for(job.resource)) for node in nodes.values())
    return [
        (node, kind)
        for node, kind in found
        if kind is not None
        and kind.count * kind.replicas >= job.gpus_per_pod
        and selects(job, node.labels, node.name)
    ]


def _of_selector(job: PodJob, hardware: Hardware) -> GpuType | None:
    """The GPU of a node that has the labels of the selector and what the pod asks for."""
    capacity = {job.resource: job.gpus_per_pod}
    node = {"metadata": {"labels": job.node_selector}, "status": {"capacity": capacity}}
    kind = gpu_node(node, hardware).type_for(job.resource)
    if kind is None or kind.gpu is None or kind.product.endswith(SHARED):
        return None
    return kind


def _stated(job: PodJob) -> tuple[GpuType, ...]:
    name = job.stated.values.get("gpu")
    if name is None:
        return ()
    try:
        gpu = find_gpu(name)
    except UnknownGpuError:
        return ()
    return (GpuType(gpu.product, gpu, job.gpus_per_pod, gpu.memory_bytes),)
