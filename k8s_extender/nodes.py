"""The nodes of the cluster as decisions see them, kept equal to it by a watch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from kubernetes.client import ApiClient, CoreV1Api

from .config import Config
from .node_labels import gpu_node
from .node_table import LiveTable
from .plain import text
from .records import GpuNode
from .watching import MAX_RETRY_S, PAGE, RETRY_S, KubeObject, ObjectWatch, objects

# Of the time until the table counts as stale, what may pass in silence before we ask again.
PATIENCE = 0.5


class NodeWatch:
    """Keeps ``table`` equal to the cluster's nodes.

    While the API server is away the last table stays; ``stale`` tells when it has not been heard
    of for ``nodes.stale_s``. Needs the verbs get, list and watch on nodes.
    """

    def __init__(
        self,
        client: ApiClient,
        config: Config,
        *,
        page: int = PAGE,
        retry_s: float = RETRY_S,
        max_retry_s: float = MAX_RETRY_S,
    ) -> None:
        self._table = LiveTable()
        self._watch = ObjectWatch(
            CoreV1Api(client).list_node,
            self._listed,
            self._changed,
            page=page,
            retry_s=retry_s,
            max_retry_s=max_retry_s,
        )
        self._take(config)

    @property
    def table(self) -> Mapping[str, GpuNode]:
        """The newest table; it never changes, the next one takes its place."""
        return self._table.nodes

    @property
    def synced(self) -> bool:
        """True once all nodes were listed."""
        return self._watch.synced.is_set()

    @property
    def age_s(self) -> float:
        """Seconds since the last word of the API server, or since the start."""
        return time.monotonic() - self._watch.heard_s

    @property
    def stale(self) -> bool:
        """True where the table may lag behind the cluster by more than ``nodes.stale_s``."""
        return not self.synced or self.age_s > self._config.nodes.stale_s

    @property
    def error(self) -> str:
        """What went wrong last, empty while all is well."""
        return self._watch.error

    def start(self) -> None:
        """Begin to watch; returns at once."""
        self._watch.start()

    def wait_synced(self, timeout_s: float) -> bool:
        """Wait for the first whole table; False where it did not come in time."""
        return self._watch.synced.wait(timeout_s)

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the watch; the table stays as it is."""
        self._watch.stop(timeout_s)

    def use(self, config: Config) -> None:
        """Read labels by another configuration: the nodes are listed anew."""
        self._take(config)
        self._watch.list_anew()

    def _take(self, config: Config) -> None:
        self._config = config
        self._watch.silent_s = PATIENCE * config.nodes.stale_s
        self._watch.resync_s = config.nodes.resync_s

    def _listed(self, found: Iterator[KubeObject]) -> None:
        self._table.replace(list(_nodes(found, self._config)))

    def _changed(self, node: KubeObject, deleted_s: float | None) -> None:
        if deleted_s is None:
            self._table.put(gpu_node(node, self._config.hardware))
        else:
            self._table.remove(text(node, "metadata", "name"))


def listed_nodes(client: ApiClient, config: Config) -> Mapping[str, GpuNode]:
    """The nodes of this moment; raises ClusterError."""
    return LiveTable(_nodes(objects(CoreV1Api(client).list_node), config)).nodes


def _nodes(found: Iterator[KubeObject], config: Config) -> Iterator[GpuNode]:
    return (gpu_node(n, config.hardware) for n in found if text(n, "metadata", "name"))
