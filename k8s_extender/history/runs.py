"""Jobs and pods that ended as runs: put together, and stored as they end."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, chain
from typing import Any, NamedTuple

from kubernetes import client as api
from kubernetes.client import ApiClient

from predictor.errors import HistoryError
from predictor.optional import needs
from predictor.site.history.run import EndedJob, JobState, LimitBy, Run

from ..config import Config
from ..errors import ClusterError
from ..nodes import GpuNode, NodeWatch, listed_nodes
from ..plain import owner_of, pod_name, text
from ..watching import PAGE, KubeObject, ObjectWatch, WatchGroup, objects
from ..workload import template_job
from .seen import JOB, SeenObject, pod_state, seen_job, seen_pod, together

with needs("history"):
    from predictor.site.history.ingest import Item, LeftOut, Tally, fill
    from predictor.site.history.store import History

SCHEDULER = "kubernetes"
# Controllers whose pods serve, and do not end.
SERVICES = frozenset(("ReplicaSet", "StatefulSet", "DaemonSet"))


@dataclass(slots=True)
class RunObjects:
    """The Jobs and pods of one run by uid, as they were last seen."""

    seen: dict[str, SeenObject] = field(default_factory=dict)

    @property
    def jobs(self) -> list[SeenObject]:
        """The Jobs."""
        return [one for one in self.seen.values() if one.kind == JOB]

    @property
    def pods(self) -> list[SeenObject]:
        """The pods."""
        return [one for one in self.seen.values() if one.kind != JOB]

    @property
    def head(self) -> SeenObject:
        """What stands for all: a Job, or without one a pod."""
        return (*self.jobs, *self.pods)[0]

    @property
    def ended(self) -> bool:
        """True once the Jobs have ended, or without a Job all pods; a Job's pods wait for it."""
        jobs, pods = self.jobs, self.pods
        of_job = not jobs and any(pod.owner.kind == JOB for pod in pods)
        return bool(self.seen) and not of_job and None not in {one.state for one in jobs or pods}

    @property
    def going(self) -> bool:
        """True while a Job or pod of it has not ended."""
        return not self.ended and any(one.state is None for one in self.seen.values())

    def runs(self, cluster: str) -> tuple[Run, ...]:
        """The runs of a group that has ended, one an attempt; the last stands for the group.

        Pods that ran together without a break are an attempt, and give start, nodes and GPUs (the
        most at one time). Attempts before the last held GPUs too: each is a run under the uid of
        its first pod. A Job whose pods are gone starts when the Job did, so that waiting for nodes
        is counted, and had the GPUs that its node selector names.
        """
        jobs, all_pods = self.jobs, self.pods
        closing_s = max(_known(job.end_s for job in jobs), default=None)
        spans = []
        for pod in all_pods:
            # One that is still being deleted ends with its Job.
            end_s = closing_s if pod.end_s is None else pod.end_s
            if pod.start_s is not None and end_s is not None:
                spans.append(_Span(pod.start_s, max(pod.start_s, end_s), pod))
        attempts: list[list[_Span]] = []  # between two there is a time without any
        for span in sorted(spans, key=lambda span: span[:2]):
            attempt = attempts[-1] if attempts else []
            ends_s = max((other.end_s for other in attempt), default=-math.inf)
            if span.start_s < ends_s or (attempt and span.start_s == attempt[0].start_s):
                attempt.append(span)
            else:
                attempts.append([span])
        *earlier, last = attempts or [[]]
        run = _last_run(cluster, jobs, [span.pod for span in last] or all_pods, last)
        runs = []
        for spans in earlier:  # what was asked is the same
            pods = [span.pod for span in spans]
            ended = replace(
                run.ended,
                job_id=pods[0].uid,
                submit_s=pods[0].submit_s,
                start_s=spans[0].start_s,
                end_s=max(span.end_s for span in spans),
                **_held((), pods, spans),
            )
            runs.append(replace(run, ended=ended, **_told((), pods)))
        return (*runs, run)


class _Span(NamedTuple):
    """When a pod ran, in Unix seconds."""

    start_s: float
    end_s: float
    pod: SeenObject


def _last_run(
    cluster: str, jobs: Sequence[SeenObject], pods: Sequence[SeenObject], spans: Sequence[_Span]
) -> Run:
    """The Jobs with the pods of the last attempt, and when those ran."""
    seen = (*jobs, *pods)
    starts = [span.start_s for span in spans] or _known(job.start_s for job in jobs)
    ends = [span.end_s for span in spans] or _known(one.end_s for one in seen)
    submit_s, limits = min(one.submit_s for one in seen), _known(one.limit_s for one in seen)
    start_s, limit_s, head = min(starts, default=None), min(limits, default=None), seen[0]
    held = _held(jobs, pods, spans)
    held["gpus"] = held["gpus"] or max(one.gpus for one in seen)
    said = max(seen, key=lambda one: len(one.asked))
    origins = said.job.stated.origins
    by_us = limit_s in {one.filled_s for one in seen}
    return Run(
        ended=EndedJob(
            scheduler=SCHEDULER,
            cluster=cluster,
            job_id=job_id(head),
            name=head.name,
            user=head.namespace,
            account=head.namespace,
            partition=head.job.queue,
            qos=head.priority,
            submit_s=submit_s,
            start_s=start_s,
            end_s=max(ends, default=start_s or submit_s),
            limit_s=limit_s,
            script=head.job.script,
            **held,
        ),
        asked=said.asked,
        origin=origins.get("model") or next(iter(origins.values()), ""),
        limit_by=None if limit_s is None else LimitBy.US if by_us else LimitBy.USER,
        **_told(jobs, pods),
    )


def _held(
    jobs: Sequence[SeenObject], pods: Sequence[SeenObject], spans: Sequence[_Span]
) -> dict[str, Any]:
    """How an attempt ended, its nodes, and the most GPUs that it held at one time.

    A Job that only says it failed leaves it to its pods to say why.
    """
    ended = [job.state for job in jobs if job.state is not None]
    state = together(ended)
    if not ended or state is JobState.FAILED:
        of_pods = together(pod.state for pod in pods if pod.state is not None)
        state = state if ended and of_pods is JobState.COMPLETED else of_pods
    changes = [(span.end_s, -span.pod.gpus) for span in spans]
    changes += [(span.start_s, span.pod.gpus) for span in spans]
    types = {pod.gpu_type for pod in pods} or {job.wanted_gpu for job in jobs}
    nodes = tuple(dict.fromkeys(pod.node for pod in pods if pod.node))
    return {
        "state": state,
        "gpus": max(accumulate(change for _, change in sorted(changes)), default=0),
        "gpu_type": types.pop() if len(types) == 1 else None,
        "nodes": len(nodes),
        "node_names": nodes,
    }


def _told(jobs: Sequence[SeenObject], pods: Sequence[SeenObject]) -> dict[str, Any]:
    """What a pod tells was said last, for the nodes it could get; the limit stands on the Job."""
    told = (one.predicted for one in (*pods, *jobs))
    found = next((predicted for predicted in told if predicted is not None), None)
    limit_s = next(iter(_known(one.filled_s for one in (*jobs, *pods))), None)
    reported = [pod.reported for pod in pods if pod.reported is not None]
    return {
        "predicted": None if found is None else replace(found, limit_s=limit_s),
        "reported": max(reported, key=lambda one: one.steps, default=None),
    }


def job_id(head: SeenObject) -> str:
    """The uid of the JobSet, controller, Job or pod that the head of a group belongs to."""
    return head.owner.uid if "/" in head.group and head.owner.uid else head.group


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


NOT_OURS = LeftOut("pods without GPUs, or of a service")


def cluster_of(config: Config) -> str:
    """The name of a cluster in the history, which Kubernetes itself does not have."""
    return config.site or SCHEDULER


def records(
    client: ApiClient, config: Config, since_s: float = 0.0, *, page: int = PAGE
) -> Iterator[Item]:
    """The GPU runs that ended from ``since_s`` (Unix seconds) on, in no order.

    Jobs with their pods, one run an attempt, and pods that no Job made. Raises ClusterError where
    the API server does not answer. Needs the verb list on nodes, pods and Jobs.
    """
    table, others = listed_runs(client, config, listed_nodes(client, config), page)
    yield from [NOT_OURS] * others
    ended = chain.from_iterable(table.ended().values())
    yield from (run for run in ended if run.ended.end_s >= since_s)


def listed_runs(
    client: ApiClient, config: Config, nodes: Mapping[str, GpuNode], page: int
) -> tuple[RunTable, int]:
    """The Jobs and pods of this moment, and how many pods that ended are not ours."""
    table = RunTable(config, nodes.get)
    for job in objects(api.BatchV1Api(client).list_job_for_all_namespaces, page):
        table.job(job)
    pods = objects(api.CoreV1Api(client).list_pod_for_all_namespaces, page)
    return table, sum(not table.pod(pod) and pod_state(pod) is not None for pod in pods)


SYNC_S = 60.0


class ClusterFollower(WatchGroup):
    """Watches nodes, pods and Jobs, and stores the runs that end.

    The API server or the database may be away: watches go on from where they were, and runs wait
    in memory, of which the oldest are dropped beyond a bound. Needs the verbs list and watch on
    nodes, pods and Jobs.
    """

    def __init__(
        self, client: ApiClient, config: Config, open_history: Callable[[], History], **options: Any
    ) -> None:
        self._open = open_history
        self._history: History | None = None
        self._nodes = NodeWatch(client, config)
        table = self._table = RunTable(config, lambda name: self._nodes.table.get(name))
        core, batch = api.CoreV1Api(client), api.BatchV1Api(client)
        jobs, pods = batch.list_job_for_all_namespaces, core.list_pod_for_all_namespaces
        self._watches = [
            ObjectWatch(jobs, partial(table.all_of, JOB), table.job, **options),
            ObjectWatch(pods, partial(table.all_of, "Pod"), table.pod, **options),
        ]

    def start(self) -> None:
        """Begin, once the nodes are known; raises ClusterError where they cannot be listed."""
        self._nodes.start()
        if not self._nodes.synced.wait(SYNC_S):
            raise ClusterError(self._nodes.error or f"no list of nodes within {SYNC_S:g} s")
        super().start()

    def stop(self) -> None:
        """End all watches."""
        super().stop()
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
LATE_S = 10.0  # the watch of pods may tell so much later what that of Jobs told
_log = logging.getLogger(__name__)


class RunTable:
    """Pods and Jobs by group; streams fill it, one thread takes what ended.

    ``node_of`` knows the nodes by name. A group stays as long as one of its objects: what changes
    after its end is given again. What has gone waits to be stored; of too many the oldest go.
    """

    def __init__(self, config: Config, node_of: Callable[[str], GpuNode | None]) -> None:
        self._config, self._rules = config, config.site_rules()
        self._node_of = node_of
        self._cluster = cluster_of(config)
        self._lock = threading.Lock()
        self._groups: dict[str, RunObjects] = {}
        self._changed: dict[str, None] = {}  # groups not stored as they are, the last change last
        self._there: dict[str, str] = {}  # the group of each object that is there, by its uid
        self._gone_s: dict[str, float] = {}  # when groups were first seen without any

    def pod(self, pod: KubeObject, deleted_s: float | None = None) -> bool:
        """Take note of a pod; False for one without GPUs, or of a service.

        ``deleted_s`` is when it was deleted, None while it is there.
        """
        job = template_job("Pod", pod, self._config, self._rules)
        if job is None or owner_of(pod).kind in SERVICES:
            return False
        node = self._node_of(text(pod, "spec", "nodeName"))
        self._note(seen_pod(pod, job, node, deleted_s), there=deleted_s is None)
        return True

    def job(self, obj: KubeObject, deleted_s: float | None = None) -> bool:
        """Take note of a Job; False for one without GPUs."""
        job = template_job(JOB, obj, self._config, self._rules)
        if job is not None:
            self._note(seen_job(obj, job, deleted_s), there=deleted_s is None)
        return job is not None

    def _note(self, seen: SeenObject, *, there: bool) -> None:
        with self._lock:
            self._there.pop(seen.uid, None)
            if there:
                self._there[seen.uid] = seen.group
            self._changed.pop(seen.group, None)
            self._changed[seen.group] = None
            known = self._groups.setdefault(seen.group, RunObjects()).seen
            if seen.gpu_type is None and seen.uid in known:
                # Its node may be gone by now: the GPU it had stays.
                seen = replace(seen, gpu_type=known[seen.uid].gpu_type)
            known[seen.uid] = seen

    def all_of(self, kind: str, found: Iterable[KubeObject]) -> None:
        """Take note of all Jobs, or all pods, there are.

        Of those that went while nobody looked and still ran it is not known how they ended.
        """
        uids, note = set(), self.job if kind == JOB else self.pod
        for obj in found:
            note(obj)
            uids.add(pod_name(obj).uid)
        with self._lock:
            for uid in self._there.keys() - uids:
                known = self._groups[self._there[uid]].seen
                if (known[uid].kind == JOB) == (kind == JOB):
                    del self._there[uid]
                    if known[uid].state is None:
                        del known[uid]

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

    def _tidy(self) -> None:
        """Forget groups of which nothing is there, unless they ended and wait to be stored."""
        there, now_s = {*self._there.values()}, time.monotonic()
        self._gone_s = {k: self._gone_s.get(k, now_s) for k in self._groups if k not in there}
        gone = (key for key, since_s in self._gone_s.items() if now_s - since_s >= LATE_S)
        waiting = [k for k in self._changed if k not in there and self._groups[k].ended]
        if dropped := waiting[:-MAX_WAITING]:
            _log.warning("the history cannot be written: %d runs are lost", len(dropped))
        for key in {*gone} - {*waiting[-MAX_WAITING:]}:
            del self._groups[key]
            self._changed.pop(key, None)
