"""What runs and waits in Kubernetes at this moment, for the capacity report."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

from kubernetes import client as api

from predictor.site.capacity.live import NOTHING, Live, LiveJob, Waits, pools_of_nodes
from predictor.site.similar.request import JobRequest

from .cli import IN_CLUSTER, KUBECONFIG, api_client
from .config import Config
from .decide import selects
from .history.runs import SCHEDULER, RunObjects, cluster_of, job_id, listed_runs
from .history.seen import SeenObject, gpu_name
from .nodes import GpuNode, listed_nodes
from .rank import request_of
from .watching import PAGE

NOWHERE = "it asks for nodes of which none takes pods"


def live() -> Live:
    """The queue and the GPUs of the cluster that $KUBECONFIG or the account of the pod reaches.

    Raises ClusterError where the API server does not answer.
    """
    return read(api_client(os.environ.get(KUBECONFIG) or IN_CLUSTER), Config())


def read(client: api.ApiClient, config: Config, *, page: int = PAGE) -> Live:
    """The same by a client and a configuration. Needs the verb list on nodes, pods and Jobs."""
    at_s, nodes = time.time(), listed_nodes(client, config, page)
    table, _ = listed_runs(client, config, nodes, page)
    usable = [node for node in nodes.values() if node.takes_pods]
    # What pods can ask for: GPUs, parts of them that are shared, and slices.
    kinds = (kind for node in usable for kind in (node.type, *node.slices.values()) if kind)
    named = ((gpu_name(kind), kind.count * kind.replicas) for kind in kinds)
    return Live(
        scheduler=SCHEDULER,
        cluster=cluster_of(config),
        at_s=at_s,
        jobs=tuple(job for group in table.going() for job in _parts(group, usable)),
        pools=pools_of_nodes((name, gpus) for name, gpus in named if name),
    )


def asked_by(seen: Sequence[SeenObject], gpus: int, types: set[str | None]) -> JobRequest:
    """The request of a job, its Jobs before its pods, with GPUs of the type if it is but one."""
    head = seen[0]
    return request_of(
        head.namespace,
        head.job,
        max((one.asked for one in seen), key=len),
        name=head.name,
        gpus=gpus,
        gpu_type=(types.pop() if len(types) == 1 else None) or "",
        limit_s=min((one.limit_s for one in seen if one.limit_s is not None), default=None),
    )


def _parts(group: RunObjects, usable: Sequence[GpuNode]) -> Iterator[LiveJob]:
    """A job that waits, or what of it has GPUs, and what still waits for them."""
    jobs = [job for job in group.jobs if job.state is None]
    pods = [pod for pod in group.pods if pod.state is None]
    started = [pod for pod in pods if pod.start_s is not None]
    waiting = [pod for pod in pods if pod.start_s is None]
    if not started:
        yield _job(jobs, pods, sum(one.gpus for one in jobs or pods), usable)
        return
    for part in (started, waiting):
        if part:
            yield _job(jobs, part, sum(pod.gpus for pod in part), usable)


def _job(
    jobs: list[SeenObject], pods: list[SeenObject], gpus: int, usable: Sequence[GpuNode]
) -> LiveJob:
    seen, head = (*jobs, *pods), (*jobs, *pods)[0]
    started = [pod for pod in pods if pod.start_s is not None]
    types, nowhere = {pod.gpu_type for pod in started}, False
    for one in seen if not started else ():
        fits = [node for node in usable if selects(one.job, node.labels, node.name)]
        named = {gpu_name(node.type_for(one.job.resource)) for node in fits} - {None}
        types.add(named.pop() if len(named) == 1 else None)
        nowhere = nowhere or not fits
    request = asked_by(seen, gpus, types)
    return LiveJob(
        job_id=job_id(head),
        request=request,
        submit_s=min(one.submit_s for one in seen),
        start_s=min((pod.start_s for pod in started if pod.start_s is not None), default=None),
        limit_s=request.limit_s,
        nodes=len({pod.node for pod in started}) or 1,
        # The API server writes it on pods alone.
        priority=max(one.priority_value for one in seen),
        held=bool(jobs) and all(one.suspended and not one.job.queue for one in jobs),
        waits=Waits(never=NOWHERE) if nowhere else NOTHING,
    )
