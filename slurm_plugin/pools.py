"""Nodes that are alike, taken together: a cluster has thousands of nodes and few kinds."""

from __future__ import annotations

from dataclasses import dataclass

from profiles.gpus import Gpu

from .cluster import Cluster, GpuGres, SlurmNode
from .config import SlurmHardware
from .hardware import gpu_of


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
