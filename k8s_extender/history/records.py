"""What the API server still has of jobs that ended, as records of the history."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from kubernetes.client import ApiClient, BatchV1Api, CoreV1Api

from predictor.site.history.ingest import Item, LeftOut

from ..config import Config
from ..nodes import listed_nodes
from ..server.loading import rules_of
from ..watching import PAGE, objects
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
