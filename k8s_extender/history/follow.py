"""Live ingest: what ends is stored within seconds, also what a TTL deletes soon after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from kubernetes.client import ApiClient, BatchV1Api, CoreV1Api

from predictor.errors import HistoryError
from predictor.site.history.ingest import Item, LeftOut, Tally, fill
from predictor.site.history.store import History

from ..config import Config
from ..errors import ClusterError
from ..nodes import NodeWatch, listed_nodes
from ..server.loading import rules_of
from ..watching import PAGE, RETRY_S, ObjectWatch, objects
from .seen import Reader
from .states import pod_state
from .table import RunTable

NOT_OURS = LeftOut("pods without GPUs, or of a service")
CLUSTER = "kubernetes"


def cluster_of(config: Config) -> str:
    """The name of a cluster in the history, which Kubernetes itself does not have."""
    return config.site or CLUSTER


def records(
    client: ApiClient, config: Config, since_s: float = 0.0, *, page: int = PAGE
) -> Iterator[Item]:
    """The GPU runs that ended from ``since_s`` (Unix seconds) on, in no order.

    Jobs with their pods, one run an attempt, and pods that no Job made. Raises ClusterError where
    the API server does not answer. Needs the verb list on nodes, pods and Jobs.
    """
    nodes = listed_nodes(client, config)
    table = RunTable(Reader(config, rules_of(config), nodes.get), cluster_of(config))
    core, batch = CoreV1Api(client), BatchV1Api(client)
    for job in objects(batch.list_job_for_all_namespaces, page):
        table.job(job)
    for pod in objects(core.list_pod_for_all_namespaces, page):
        if not table.pod(pod) and pod_state(pod) is not None:
            yield NOT_OURS
    ended = chain.from_iterable(table.ended().values())
    yield from (run for run in ended if run.ended.end_s >= since_s)


SYNC_S = 60.0


class ClusterFollower:
    """Watches nodes, pods and Jobs, and stores the runs that end.

    The API server or the database may be away: watches go on from where they were, and runs wait
    in memory, of which the oldest are dropped beyond a bound. Needs the verbs list and watch on
    nodes, pods and Jobs.
    """

    def __init__(
        self,
        client: ApiClient,
        config: Config,
        open_history: Callable[[], History],
        *,
        page: int = PAGE,
        retry_s: float = RETRY_S,
    ) -> None:
        self._open = open_history
        self._history: History | None = None
        self._nodes = NodeWatch(client, config)
        reader = Reader(config, rules_of(config), lambda name: self._nodes.table.get(name))
        self._table = RunTable(reader, cluster_of(config))
        core, batch = CoreV1Api(client), BatchV1Api(client)
        table = self._table
        self._watches = [
            ObjectWatch(call, listed, changed, page=page, retry_s=retry_s)
            for call, listed, changed in (
                (batch.list_job_for_all_namespaces, table.all_jobs, table.job),
                (core.list_pod_for_all_namespaces, table.all_pods, table.pod),
            )
        ]

    def start(self) -> None:
        """Begin, once the nodes are known; raises ClusterError where they cannot be listed."""
        self._nodes.start()
        if not self._nodes.wait_synced(SYNC_S):
            raise ClusterError(self._nodes.error or f"no list of nodes within {SYNC_S:g} s")
        for watch in self._watches:
            watch.start()

    def stop(self) -> None:
        """End all watches."""
        for watch in self._watches:
            watch.stop()
        self._nodes.stop()
        if self._history is not None:
            self._history.close()

    def store(self) -> Tally:
        """Store what has ended since; raises HistoryError, after which it is tried again."""
        runs = self._table.ended()
        if not runs:
            return Tally()
        try:
            self._history = self._history or self._open()
            tally = fill(self._history, chain.from_iterable(runs.values()))
        except HistoryError:
            self._history = None
            raise
        self._table.stored(runs)
        return tally
