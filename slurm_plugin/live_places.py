"""Where jobs of the live queue can run: GPUs by node, and the only type a job may get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .cluster import SlurmJob, SlurmNode
from .config import SlurmHardware
from .constraints import Constraint, parse
from .hardware import gpu_named, gpu_of
from .history.records import GpuNames

UNTYPED = "gpu"


@dataclass(frozen=True, slots=True)
class Place:
    """GPUs of one type on a node: ``kind`` is Slurm's type, ``name`` that of predictions."""

    node: SlurmNode
    kind: str | None
    name: str
    count: int


class Places:
    """Where jobs can run; nodes that are down take none."""

    def __init__(self, nodes: Iterable[SlurmNode], hardware: SlurmHardware) -> None:
        found = tuple(nodes)
        self._hardware = hardware
        self._named = GpuNames(found, hardware)
        self.usable = tuple(_places(found, hardware))

    def gpu_type(self, job: SlurmJob) -> str | None:
        """The GPU a job has, or the only one its partitions and constraint leave it, or None.

        A type of Slurm that means several GPUs counts as the one there is most of.
        """
        if job.node_names:
            return self._named(job.gpu_type, job.node_names)
        constraint = parse(job.features) if job.features else None
        counts: Counter[str] = Counter()
        for place in self.usable:
            if _allows(place, job, constraint):
                counts[place.name] += place.count
        if not counts and job.gpu_type is not None:
            known = gpu_named(job.gpu_type, self._hardware)
            return job.gpu_type if known is None else known.name
        if len(counts) == 1 or job.gpu_type is not None:
            return counts.most_common(1)[0][0]
        return None


def _places(nodes: Iterable[SlurmNode], hardware: SlurmHardware) -> Iterator[Place]:
    for node in nodes:
        for gres in node.gpus if node.usable else ():
            gpu = gpu_of(node, gres, hardware)
            name = (gres.type or UNTYPED) if gpu is None else gpu.name
            yield Place(node, gres.type, name, gres.count)


def _allows(place: Place, job: SlurmJob, constraint: Constraint | None) -> bool:
    return (
        job.gpu_type in (None, place.kind)
        and not set(job.partitions).isdisjoint(place.node.partitions)
        and (constraint is None or constraint.matches(place.node.features))
    )
