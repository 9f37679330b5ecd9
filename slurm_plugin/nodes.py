"""Which GPU a node of Slurm has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from profiles.errors import UnknownGpuError
from profiles.gpus import Gpu, find_gpu

from .cluster import Cluster, GpuGres, SlurmNode
from .config import SlurmHardware
from .constraints import parse
from .protocol import HookRequest
from .sources.words import expand
from .tres import GpuRequest


def gpu_of(node: SlurmNode, gres: GpuGres, hardware: SlurmHardware) -> Gpu | None:
    """The GPU behind one GRES of a node, None where no name tells.

    Asked in this order: ``hardware.node_gpus`` by pattern of the node's name, the GRES type, the
    node's features; GRES types and features first through ``hardware.gpu_types``.
    """
    for pattern, name in hardware.node_gpus.items():
        if fnmatchcase(node.name, pattern):
            return gpu_named(name, hardware)
    if gres.type is not None:
        return gpu_named(gres.type, hardware)
    named = (gpu_named(feature, hardware) for feature in sorted(node.features))
    return next((gpu for gpu in named if gpu is not None), None)


def gpu_named(name: str, hardware: SlurmHardware) -> Gpu | None:
    """The GPU that a GRES type or feature means, None where it means none."""
    try:
        return find_gpu(hardware.gpu_types.get(name, name))
    except UnknownGpuError:
        return None


def distinct(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Each GPU once, in order."""
    return tuple({gpu.name: gpu for gpu in gpus}.values())


@dataclass(frozen=True, slots=True)
class PoolGpus:
    """GPUs of one type on every node of a pool; ``gpu`` is None where we do not know the type."""

    gres: GpuGres
    gpu: Gpu | None

    @property
    def label(self) -> str:
        """What the cluster calls the type."""
        return self.gres.type or (self.gpu.name if self.gpu else "unknown GPU")


@dataclass(frozen=True, slots=True)
class NodePool:
    """Nodes of the same partitions, features and GPUs; ``usable`` are those not down or drained."""

    partitions: frozenset[str]
    features: frozenset[str]
    gpus: tuple[PoolGpus, ...]
    names: tuple[str, ...]
    usable: frozenset[str]


class Pools:
    """The pools of the newest view of Slurm, made once for each."""

    def __init__(self, hardware: SlurmHardware) -> None:
        self._hardware = hardware
        self._made: tuple[Cluster | None, tuple[NodePool, ...]] = (None, ())

    def of(self, cluster: Cluster) -> tuple[NodePool, ...]:
        """The pools of a view."""
        known, pools = self._made
        if known is not cluster:
            pools = pools_of(cluster, self._hardware)
            self._made = (cluster, pools)
        return pools


def pools_of(cluster: Cluster, hardware: SlurmHardware) -> tuple[NodePool, ...]:
    """The nodes of a view by kind, without those that have no GPUs."""
    alike: dict[tuple[object, ...], list[tuple[SlurmNode, tuple[PoolGpus, ...]]]] = {}
    for node in cluster.nodes:
        if node.gpus:
            gpus = tuple(PoolGpus(gres, gpu_of(node, gres, hardware)) for gres in node.gpus)
            types = tuple((g.gres, g.gpu.name if g.gpu else None) for g in gpus)
            alike.setdefault((node.partitions, node.features, types), []).append((node, gpus))
    return tuple(_pool(nodes) for nodes in alike.values())


def _pool(nodes: list[tuple[SlurmNode, tuple[PoolGpus, ...]]]) -> NodePool:
    first, gpus = nodes[0]
    names = tuple(node.name for node, _ in nodes)
    usable = frozenset(node.name for node, _ in nodes if node.usable)
    return NodePool(frozenset(first.partitions), first.features, gpus, names, usable)


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
