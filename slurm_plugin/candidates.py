"""The nodes a job may land on, as its own request leaves them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from profiles.gpus import Gpu

from .constraints import parse
from .hostlist import expand
from .pools import NodePool
from .protocol import HookRequest
from .tres import GpuRequest


@dataclass(frozen=True, slots=True)
class CandidateNodes:
    """Nodes that are alike, with ``count`` GPUs of one type each.

    ``gpu`` is None where we do not know the type, ``label`` what the cluster calls it. ``usable``
    counts the nodes that are not down or drained.
    """

    names: tuple[str, ...]
    usable: int
    features: frozenset[str]
    gpu: Gpu | None
    count: int
    label: str


def candidates(
    pools: Iterable[NodePool], request: HookRequest, wanted: GpuRequest, partitions: Iterable[str]
) -> tuple[CandidateNodes, ...]:
    """Nodes of ``partitions`` that the request allows and whose GPUs suffice, down ones too.

    A constraint in a form we do not reason about excludes nothing, so a limit covers too many
    GPU types rather than too few.
    """
    asked = frozenset(partitions)
    constraint = parse(request.features) if request.features else None
    excluded = frozenset(expand(request.exc_nodes or ""))
    required = frozenset(expand(request.req_nodes or ""))
    if wanted.nodes is not None and len(required) < wanted.nodes:
        required = frozenset()  # the job takes other nodes besides
    found: list[CandidateNodes] = []
    for pool in pools:
        if not asked & pool.partitions:
            continue
        if constraint is not None and not constraint.matches(pool.features):
            continue
        names = _left(pool, excluded, required)
        if names:
            found.extend(_gpus(pool, names, wanted))
    return tuple(found)


def _left(pool: NodePool, excluded: frozenset[str], required: frozenset[str]) -> tuple[str, ...]:
    if not excluded and not required:
        return pool.names
    return tuple(n for n in pool.names if n not in excluded and (not required or n in required))


def _gpus(pool: NodePool, names: tuple[str, ...], wanted: GpuRequest) -> Iterable[CandidateNodes]:
    least = wanted.gpus_per_node or 1
    usable = len(pool.usable.intersection(names))
    for gpus in pool.gpus:
        kind, count = gpus.gres.type, gpus.gres.count
        if count >= least and (not wanted.types or kind in (None, *wanted.types)):
            yield CandidateNodes(names, usable, pool.features, gpus.gpu, count, gpus.label)


def suffice(found: Sequence[CandidateNodes], wanted: GpuRequest) -> bool:
    """True where usable nodes among ``found`` could hold the whole job at some time."""
    per_node = wanted.gpus_per_node
    if per_node is not None:
        enough = sum(c.usable for c in found if c.count >= per_node)
        return enough >= -(-wanted.gpus // per_node)
    if wanted.nodes is not None and sum(c.usable for c in found) < wanted.nodes:
        return False
    return sum(c.usable * c.count for c in found) >= wanted.gpus
