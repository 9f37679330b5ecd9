"""Which GPU a node of Slurm has."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from profiles.errors import UnknownGpuError
from profiles.gpus import Gpu, find_gpu

from .cluster import GpuGres, SlurmNode
from .config import SlurmHardware


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
