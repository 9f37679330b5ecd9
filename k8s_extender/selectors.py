"""Which nodes a pod may land on: its node selector, required node affinity and tolerations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from profiles.errors import UnknownGpuError
from profiles.gpus import find_gpu

from .config import Hardware
from .node_labels import gpu_node
from .plain import items, text
from .records import GpuNode, GpuType, PodJob, Taint
from .type_index import NodeTable

# Taints that are no lasting hindrance to a pod: of the node's health, and of pools of GPU nodes,
# which an admission plugin of the API server lets every GPU pod bear.
_EXCUSED = ("node.kubernetes.io/", "nvidia.com/")
_KEEPING_OUT = frozenset(("NoSchedule", "NoExecute"))
_INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_NAME_FIELD = "metadata.name"


def selects(job: PodJob, labels: Mapping[str, str], name: str | None = None) -> bool:
    """Whether a node with these labels meets a pod's selector and required affinity.

    A requirement that the API server would not accept is met by no node. A term about the node's
    name is met by any node whose ``name`` is not told.
    """
    if any(labels.get(key) != value for key, value in job.node_selector.items()):
        return False
    if job.node_affinity is None:
        return True
    terms = job.node_affinity if isinstance(job.node_affinity, list) else []
    return any(_term(term, labels, name) for term in terms)


def bears(job: PodJob, taints: Iterable[Taint]) -> bool:
    """Whether a pod may be placed on a node with these taints."""
    return all(
        taint.effect not in _KEEPING_OUT
        or taint.key.startswith(_EXCUSED)
        or any(_tolerates(one, taint) for one in job.tolerations)
        for taint in taints
    )


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    key, effect = text(toleration, "key"), text(toleration, "effect")
    if effect not in ("", taint.effect) or key not in ("", taint.key):
        return False
    return text(toleration, "operator") == "Exists" or text(toleration, "value") == taint.value


def _term(term: Any, labels: Mapping[str, str], name: str | None) -> bool:
    """All requirements of a term hold; a term without any holds for no node."""
    expressions, fields = items(term, "matchExpressions"), items(term, "matchFields")
    named = {} if name is None else {_NAME_FIELD: name}
    return (
        bool(expressions or fields)
        and all(_holds(e, labels) for e in expressions)
        and all(_about_name(f) and (name is None or _holds(f, named)) for f in fields)
    )


def _about_name(requirement: Any) -> bool:
    return text(requirement, "key") == _NAME_FIELD


def _holds(requirement: Any, labels: Mapping[str, str]) -> bool:
    operator = _OPERATORS.get(text(requirement, "operator"))
    if operator is None:
        return False
    values = [value for value in items(requirement, "values") if isinstance(value, str)]
    return operator(labels.get(text(requirement, "key")), values)


def _greater(found: str | None, values: list[str]) -> bool:
    return _whole(found, values) and int(found or "") > int(values[0])


def _less(found: str | None, values: list[str]) -> bool:
    return _whole(found, values) and int(found or "") < int(values[0])


def _whole(found: str | None, values: list[str]) -> bool:
    numbers = [found, *values]
    return len(values) == 1 and all(n is not None and _INTEGER.fullmatch(n) for n in numbers)


_OPERATORS: Mapping[str, Callable[[str | None, list[str]], bool]] = {
    "In": lambda found, values: found in values,
    "NotIn": lambda found, values: found not in values,
    "Exists": lambda found, values: found is not None,
    "DoesNotExist": lambda found, values: found is None,
    "Gt": _greater,
    "Lt": _less,
}


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
