"""What runs and waits in Kubernetes at this moment, for the capacity report."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from kubernetes.client import ApiClient, BatchV1Api, CoreV1Api

from predictor.site.capacity.live import NOTHING, Live, LiveJob, NodeGpus, Waits, pools_of_nodes

from .cli import IN_CLUSTER, KUBECONFIG, api_client
from .config import Config, config_at
from .history.follow import RunTable, cluster_of
from .history.groups import SCHEDULER, RunObjects, job_id
from .history.seen import Reader, SeenObject, SeenPod, gpu_name
from .node_labels import gpu_node, takes_pods
from .plain import at, count, mapping, text
from .records import GpuNode, pod_name
from .selectors import selects
from .watching import PAGE, objects
from .workload import template_job

NOWHERE = "it asks for nodes of which none takes pods"


def live() -> Live:
    """The queue and the GPUs of the cluster that $KUBECONFIG or the account of the pod reaches.

    Raises ClusterError where the API server does not answer.
    """
    client = api_client(os.environ.get(KUBECONFIG) or IN_CLUSTER)
    return read(client, config_at(None))


def read(client: ApiClient, config: Config, *, page: int = PAGE) -> Live:
    """The same by a client and a configuration. Needs the verb list on nodes, pods and Jobs."""
    at_s = time.time()
    queue = _read(client, config, page)
    return Live(
        scheduler=SCHEDULER,
        cluster=cluster_of(config),
        at_s=at_s,
        jobs=tuple(queue.jobs()),
        pools=pools_of_nodes(tuple(gpus for node in queue.usable for gpus in _gpus(node))),
    )


def groups(client: ApiClient) -> list[RunObjects]:
    """What runs and waits, by job."""
    return _read(client, config_at(None), PAGE).table.going()


def _read(client: ApiClient, config: Config, page: int) -> _Queue:
    core, batch = CoreV1Api(client), BatchV1Api(client)
    queue = _Queue(config, list(objects(core.list_node, page)))
    for job in objects(batch.list_job_for_all_namespaces, page):
        queue.job(job)
    for pod in objects(core.list_pod_for_all_namespaces, page):
        queue.pod(pod)
    return queue


class _Queue:
    """Jobs and pods put together, and what only their templates tell."""

    def __init__(self, config: Config, nodes: list[Mapping[str, Any]]) -> None:
        self._config, self._rules = config, config.site_rules()
        known = {text(n, "metadata", "name"): gpu_node(n, config.hardware) for n in nodes}
        self.table = RunTable(Reader(config, self._rules, known.get), cluster_of(config))
        self.usable = [known[text(n, "metadata", "name")] for n in nodes if takes_pods(n)]
        self._types: dict[str, str | None] = {}
        self._priorities: dict[str, int] = {}
        self._suspended: set[str] = set()
        self._nowhere: set[str] = set()

    def job(self, job: Mapping[str, Any]) -> None:
        if self.table.job(job):
            self._look("Job", job, mapping(job, "spec", "template"))
            if at(job, "spec", "suspend") is True:
                self._suspended.add(pod_name(job).uid)

    def pod(self, pod: Mapping[str, Any]) -> None:
        if self.table.pod(pod):
            self._look("Pod", pod, pod)

    def jobs(self) -> Iterator[LiveJob]:
        return (job for group in self.table.going() for job in self._parts(group))

    def _look(self, kind: str, obj: Mapping[str, Any], template: Mapping[str, Any]) -> None:
        """Which GPUs it may get, and its priority: the API server writes that on pods alone."""
        made = template_job(kind, obj, self._config, self._rules)
        if made is None:
            return
        uid = pod_name(obj).uid
        fits = [node for node in self.usable if selects(made, node.labels, node.name)]
        if not fits:
            self._nowhere.add(uid)
        names = {gpu_name(node.type_for(made.resource)) for node in fits} - {None}
        self._types[uid] = names.pop() if len(names) == 1 else None
        self._priorities[uid] = count(template, "spec", "priority") or 0

    def _parts(self, group: RunObjects) -> Iterator[LiveJob]:
        """A job that waits, or what of it has GPUs, and what still waits for them."""
        jobs = [job for job in group.jobs.values() if job.state is None]
        pods = [pod for pod in group.pods.values() if pod.of.state is None]
        started = [pod for pod in pods if pod.of.start_s is not None]
        waiting = [pod for pod in pods if pod.of.start_s is None]
        if not started:
            yield self._job(jobs, pods, sum(one.gpus for one in jobs or (p.of for p in pods)))
            return
        for part in (started, waiting):
            if part:
                yield self._job(jobs, part, sum(pod.of.gpus for pod in part))

    def _job(self, jobs: list[SeenObject], pods: list[SeenPod], gpus: int) -> LiveJob:
        seen = (*jobs, *(pod.of for pod in pods))
        started = [pod for pod in pods if pod.of.start_s is not None]
        starts = [pod.of.start_s for pod in started if pod.of.start_s is not None]
        types = {pod.gpu_type for pod in started} or {self._types.get(one.uid) for one in seen}
        limits = [one.limit_s for one in seen if one.limit_s is not None]
        held = bool(jobs) and all(one.uid in self._suspended and not one.queue for one in jobs)
        head, nowhere = seen[0], not started and any(one.uid in self._nowhere for one in seen)
        return LiveJob(
            job_id=job_id(head),
            name=head.name,
            user=head.namespace,
            account=head.namespace,
            partition=head.queue,
            submit_s=min(one.submit_s for one in seen),
            start_s=min(starts, default=None),
            limit_s=min(limits, default=None),
            gpus=gpus,
            gpu_type=types.pop() if len(types) == 1 else None,
            nodes=len({pod.node for pod in started}) or 1,
            asked=max((one.asked for one in seen), key=len),
            priority=max(self._priorities.get(one.uid, 0) for one in seen),
            held=held,
            waits=Waits(never=NOWHERE) if nowhere else NOTHING,
        )


def _gpus(node: GpuNode) -> Iterator[NodeGpus]:
    """What pods can ask for: GPUs, parts of them that are shared, and slices."""
    for kind in (node.type, *node.slices.values()):
        name = gpu_name(kind)
        if kind is not None and name:
            yield NodeGpus(name, kind.count * kind.replicas)
