"""The nodes a job may land on, as its own request leaves them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from profiles.gpus import Gpu

from .cluster import Cluster, Node
from .config import Hardware
from .constraints import parse
from .hardware import gpu_of
from .hostlist import expand
from .protocol import Request
from .tres import GpuRequest


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node with GPUs of one type; ``gpu`` is None where we do not know the type."""

    node: Node
    gpu: Gpu | None
    count: int
    label: str


def candidates(
    cluster: Cluster,
    request: Request,
    wanted: GpuRequest,
    hardware: Hardware,
    partitions: Iterable[str],
) -> tuple[Candidate, ...]:
    """Nodes of ``partitions`` that the request allows and whose GPUs suffice, down ones too.

    A constraint in a form we do not reason about excludes nothing, so a limit covers too many
    GPU types rather than too few.
    """  # fmt: skip
    names = set(partitions)
    constraint = parse(request.features) if request.features else None
    excluded = set(expand(request.exc_nodes or ""))
    required = set(expand(request.req_nodes or ""))
    if wanted.nodes is not None and len(required) < wanted.nodes:
        required = set()  # the job takes other nodes besides
    found: list[Candidate] = []
    for node in cluster.nodes:
        if not names & set(node.partitions) or node.name in excluded:
            continue
        if required and node.name not in required:
            continue
        if constraint is not None and not constraint.matches(node.features):
            continue
        found.extend(_gpus(node, wanted, hardware))
    return tuple(found)


def _gpus(node: Node, wanted: GpuRequest, hardware: Hardware) -> Iterable[Candidate]:
    least = wanted.gpus_per_node or 1
    for gres in node.gpus:
        if gres.count < least or (wanted.types and gres.type not in (None, *wanted.types)):
            continue
        gpu = gpu_of(node, gres, hardware)
        yield Candidate(node, gpu, gres.count, gres.type or (gpu.name if gpu else "unknown GPU"))


def suffice(found: Iterable[Candidate], wanted: GpuRequest) -> bool:
    """True where usable nodes among ``found`` could hold the whole job at some time."""
    counts = sorted((c.count for c in found if c.node.usable), reverse=True)
    per_node = wanted.gpus_per_node
    if per_node is not None:
        return sum(count >= per_node for count in counts) >= -(-wanted.gpus // per_node)
    if wanted.nodes is not None and len(counts) < wanted.nodes:
        return False
    return sum(counts) >= wanted.gpus
