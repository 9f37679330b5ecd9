"""Live ingest: what ends is stored within seconds, also what a TTL deletes soon after."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from kubernetes.client import ApiClient, BatchV1Api, CoreV1Api

from predictor.errors import HistoryError
from predictor.site.history.ingest import Item, LeftOut, Tally, fill
from predictor.site.history.run import Run
from predictor.site.history.store import History

from ..config import Config
from ..errors import ClusterError
from ..nodes import NodeWatch, listed_nodes
from ..records import pod_name
from ..watching import PAGE, RETRY_S, ObjectWatch, objects
from .groups import SERVICES, RunObjects
from .seen import Reader, SeenObject, SeenPod
from .states import pod_state

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
    table = RunTable(Reader(config, config.site_rules(), nodes.get), cluster_of(config))
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
        reader = Reader(config, config.site_rules(), lambda name: self._nodes.table.get(name))
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
        if not self._nodes.synced.wait(SYNC_S):
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


MAX_WAITING = 20_000  # groups that wait for a database, about 100 MB
_log = logging.getLogger(__name__)


class RunTable:
    """Pods and Jobs by group; streams fill it, one thread takes what ended.

    A group stays as long as one of its objects is there: what changes after its end is given
    again. What has gone waits until it is stored; of too many the oldest are dropped.
    """

    def __init__(self, reader: Reader, cluster: str) -> None:
        self._reader = reader
        self._cluster = cluster
        self._lock = threading.Lock()
        self._groups: dict[str, RunObjects] = {}
        self._changed: dict[str, None] = {}  # groups not stored as they are, the last change last
        self._pods: dict[str, str] = {}  # the group of each pod that is there, by its uid
        self._jobs: dict[str, str] = {}

    def pod(self, pod: Mapping[str, Any], deleted_s: float | None = None) -> bool:
        """Take note of a pod; False for one without GPUs, or of a service."""
        seen = self._reader.pod(pod, deleted_s)
        if seen is None or seen.of.owner.kind in SERVICES:
            return False
        with self._lock:
            group = self._touched(seen.of, self._pods, there=deleted_s is None)
            group.pods[seen.of.uid] = _as_known(seen, group.pods.get(seen.of.uid))
        return True

    def job(self, job: Mapping[str, Any], deleted_s: float | None = None) -> bool:
        """Take note of a Job; False for one without GPUs."""
        seen = self._reader.job(job, deleted_s)
        if seen is None:
            return False
        with self._lock:
            self._touched(seen, self._jobs, there=deleted_s is None).jobs[seen.uid] = seen
        return True

    def all_pods(self, found: Iterable[Mapping[str, Any]]) -> None:
        """Take note of all pods there are.

        Of those that went while nobody looked and still ran it is not known how they ended.
        """
        uids = _noted(found, self.pod)
        with self._lock:
            for uid in self._pods.keys() - uids:
                pods = self._groups[self._pods.pop(uid)].pods
                if pods[uid].of.state is None:
                    del pods[uid]

    def all_jobs(self, found: Iterable[Mapping[str, Any]]) -> None:
        """The same of Jobs."""
        uids = _noted(found, self.job)
        with self._lock:
            for uid in self._jobs.keys() - uids:
                jobs = self._groups[self._jobs.pop(uid)].jobs
                if jobs[uid].state is None:
                    del jobs[uid]

    def ended(self) -> dict[str, tuple[Run, ...]]:
        """The runs that ended and are not stored as they are, by group."""
        with self._lock:
            self._tidy()
            changed = ((key, self._groups[key]) for key in self._changed)
            return {key: group.runs(self._cluster) for key, group in changed if group.ended}

    def going(self) -> list[RunObjects]:
        """The groups of which something still runs or waits."""
        with self._lock:
            return [group for group in self._groups.values() if group.going]

    def stored(self, runs: Mapping[str, tuple[Run, ...]]) -> None:
        """What ``ended`` gave was stored."""
        with self._lock:
            for key, known in runs.items():
                if self._groups[key].runs(self._cluster) == known:
                    self._changed.pop(key, None)
            self._tidy()

    def _touched(self, seen: SeenObject, where: dict[str, str], *, there: bool) -> RunObjects:
        """The group of an object that is, or is no longer, there."""
        if there:
            where[seen.uid] = seen.group
        else:
            where.pop(seen.uid, None)
        self._changed.pop(seen.group, None)
        self._changed[seen.group] = None
        return self._groups.setdefault(seen.group, RunObjects())

    def _tidy(self) -> None:
        """Forget groups of which nothing is there, unless they ended and wait to be stored."""
        there = {*self._pods.values(), *self._jobs.values()}
        gone = [key for key in self._groups if key not in there]
        waiting = [k for k in self._changed if k not in there and self._groups[k].ended]
        if dropped := waiting[:-MAX_WAITING]:
            _log.warning("the history cannot be written: %d runs are lost", len(dropped))
        for key in {*gone} - {*waiting[-MAX_WAITING:]}:
            del self._groups[key]
            self._changed.pop(key, None)


def _noted(
    found: Iterable[Mapping[str, Any]], note: Callable[[Mapping[str, Any]], object]
) -> set[str]:
    """Take note of each object; their uids."""
    uids = set()
    for obj in found:
        note(obj)
        uids.add(pod_name(obj).uid)
    return uids


def _as_known(seen: SeenPod, before: SeenPod | None) -> SeenPod:
    """Its node may be gone by now: the GPU it had stays."""
    if before is None or seen.gpu_type is not None:
        return seen
    return replace(seen, gpu_type=before.gpu_type)
