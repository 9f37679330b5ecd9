"""The nodes of a cluster as one table that readers never see half changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from .records import GpuNode, GpuType


class LiveTable:
    """Nodes by name; each change puts a new mapping in the place of the old one.

    Equal GPU types are one object, so that readers may tell them apart by identity. One thread
    writes, any number read ``nodes``.
    """

    def __init__(self, nodes: Iterable[GpuNode] = ()) -> None:
        self._types: dict[GpuType, GpuType] = {}
        self._known: dict[str, GpuNode] = {}
        self.nodes: Mapping[str, GpuNode] = MappingProxyType({})
        self.replace(nodes)

    def replace(self, nodes: Iterable[GpuNode]) -> None:
        """These nodes and no others; what did not change stays the same object."""
        known = {node.name: self._settled(node) for node in nodes}
        kinds = (k for n in known.values() for k in (n.type, *n.slices.values()) if k is not None)
        self._types = {kind: kind for kind in kinds}
        self._swap(known)

    def put(self, node: GpuNode) -> None:
        """A node that is new or has changed."""
        settled = self._settled(node)
        if settled is not self._known.get(node.name):
            known = self._known.copy()
            known[node.name] = settled
            self._swap(known)

    def remove(self, name: str) -> None:
        """A node that is gone."""
        if name in self._known:
            known = self._known.copy()
            del known[name]
            self._swap(known)

    def _swap(self, known: dict[str, GpuNode]) -> None:
        self._known = known
        self.nodes = MappingProxyType(known)

    def _settled(self, node: GpuNode) -> GpuNode:
        old = self._known.get(node.name)
        if old == node:
            return old
        return replace(
            node,
            type=None if node.type is None else self._types.setdefault(node.type, node.type),
            slices={name: self._types.setdefault(k, k) for name, k in node.slices.items()},
        )
