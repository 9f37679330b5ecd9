"""Which GPU an ended job ran on, by the name that predictions use."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from ..cluster import SlurmNode
from ..config import SlurmHardware
from ..hardware import gpu_named, gpu_of

_KEPT = 65_536  # GRES types times nodes


class GpuNames:
    """Names GPUs as submit does: through the site's ``hardware`` and the nodes as they are today.

    The node of a job may be gone; then its GRES type alone tells.
    """

    def __init__(self, nodes: Iterable[SlurmNode], hardware: SlurmHardware) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._hardware = hardware
        self._named = lru_cache(maxsize=_KEPT)(self._name)

    def __call__(self, kind: str | None, node_names: tuple[str, ...]) -> str | None:
        """The GPU of a job by GRES type and nodes; the type where no GPU is known for it."""
        return self._named(kind, node_names[0] if node_names else "")

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
