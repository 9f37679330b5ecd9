"""The nodes of the cluster as decisions see them, kept equal to it by a watch."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from kubernetes.client import ApiClient, CoreV1Api

from .config import Config
from .node_labels import gpu_node
from .plain import text
from .records import GpuNode, GpuType
from .watching import KubeObject, ObjectWatch, objects

# Of the time until the table counts as stale, what may pass in silence before we ask again.
PATIENCE = 0.5


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
            self._swap(self._known | {node.name: settled})

    def remove(self, name: str) -> None:
        """A node that is gone."""
        if name in self._known:
            self._swap({known: node for known, node in self._known.items() if known != name})

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


class NodeWatch(ObjectWatch):
    """Keeps ``table`` equal to the cluster's nodes.

    While the API server is away the last table stays; ``stale`` tells when it has not been heard
    of for ``nodes.stale_s``. Needs the verbs list and watch on nodes.
    """

    def __init__(self, client: ApiClient, config: Config, **options: Any) -> None:
        call = CoreV1Api(client).list_node
        super().__init__(call, self._all, self._one, **options)
        self._table = LiveTable()
        self._heed(config)

    @property
    def table(self) -> Mapping[str, GpuNode]:
        """The newest table; it never changes, the next one takes its place."""
        return self._table.nodes

    @property
    def age_s(self) -> float:
        """Seconds since the last word of the API server, or since the start."""
        return time.monotonic() - self.heard_s

    @property
    def stale(self) -> bool:
        """True where the table may lag behind the cluster by more than ``nodes.stale_s``."""
        return not self.synced.is_set() or self.age_s > self._config.nodes.stale_s

    def use(self, config: Config) -> None:
        """Read labels by another configuration: the nodes are listed anew."""
        self._heed(config)
        self.list_anew()

    def _heed(self, config: Config) -> None:
        self._config = config
        self.silent_s = PATIENCE * config.nodes.stale_s
        self.resync_s = config.nodes.resync_s

    def _all(self, found: Iterator[KubeObject]) -> None:
        self._table.replace(list(_nodes(found, self._config)))

    def _one(self, node: KubeObject, deleted_s: float | None) -> None:
        if deleted_s is None:
            self._table.put(gpu_node(node, self._config.hardware))
        else:
            self._table.remove(text(node, "metadata", "name"))


def listed_nodes(client: ApiClient, config: Config) -> Mapping[str, GpuNode]:
    """The nodes of this moment; raises ClusterError."""
    return LiveTable(_nodes(objects(CoreV1Api(client).list_node), config)).nodes


def _nodes(found: Iterator[KubeObject], config: Config) -> Iterator[GpuNode]:
    return (gpu_node(n, config.hardware) for n in found if text(n, "metadata", "name"))
