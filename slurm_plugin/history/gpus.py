"""Which GPU an ended job ran on, by the name that predictions use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from predictor.ended_job import EndedJob

from ..cluster import Node
from ..config import Hardware
from ..hardware import gpu_named, gpu_of

_KEPT = 65_536  # GRES types times nodes


class GpuNames:
    """Names GPUs as submit does: through the site's ``hardware`` and the nodes as they are today.

    The node of a job may be gone; then its GRES type alone tells.
    """

    def __init__(self, nodes: Iterable[Node], hardware: Hardware) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._hardware = hardware
        self._named = lru_cache(maxsize=_KEPT)(self._name)

    def named(self, job: EndedJob) -> EndedJob:
        """The job with the GPU it ran on; the type stays Slurm's where no GPU is known for it."""
        known = self._named(job.gpu_type, job.node_names[0] if job.node_names else "")
        return job if known == job.gpu_type else replace(job, gpu_type=known)

    def _name(self, kind: str | None, node_name: str) -> str | None:
        node = self._nodes.get(node_name)
        gres = () if node is None else node.gpus
        found = {
            None if (gpu := gpu_of(node, one, self._hardware)) is None else gpu.name
            for one in gres
            if node is not None and (kind is None or one.type in (kind, None))
        }
        if len(found) == 1 and (name := found.pop()) is not None:
            return name
        known = None if kind is None else gpu_named(kind, self._hardware)
        return kind if known is None else known.name
