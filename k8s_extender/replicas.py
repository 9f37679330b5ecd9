"""How many pods one training job has, as far as one of its pods tells."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from predictor.identify.flags import flag_of
from predictor.identify.launch import launch_of, said

from .commands import StartedCommand
from .config import PREFIX
from .plain import count
from .pod_gpus import PodGpus

MAX_PODS = 2**16
PODS = f"{PREFIX}pods"
# Nodes of torch.distributed: the operator of Kubeflow sets the first, users the second.
NODE_VARIABLES = ("PET_NNODES", "NNODES")
PROCESS_VARIABLE = "WORLD_SIZE"
PROCESSES_A_POD = ("PET_NPROC_PER_NODE", "NPROC_PER_NODE")
NODE_FLAGS = frozenset(("--nnodes", "--num-machines", "--num-nodes"))
PROCESS_FLAGS = frozenset(("--num-processes",))
# Pods of a group, by what makes the group: Kueue's plain pods and LeaderWorkerSet.
GROUP_SIZES = ("kueue.x-k8s.io/pod-group-total-count", "leaderworkerset.sigs.k8s.io/size")
REPLICATED = "jobset.sigs.k8s.io/replicatedjob-replicas"
KUBEFLOW = "training.kubeflow.org/job-name"
_NODES = re.compile(r"(?:\d{1,6}:)?(\d{1,6})", re.ASCII)


def pods_stated(annotations: Mapping[str, str]) -> int | None:
    """What the user says in ``precision-time.io/pods``."""
    return _possible(count(annotations, PODS))


def pods_launched(ran: StartedCommand, labels: Mapping[str, str], asked: PodGpus) -> int | None:
    """What environment and launcher say; of an elastic job's ``2:8`` nodes, the most."""
    for name in NODE_VARIABLES:
        if found := _nodes(ran.environment.get(name, "")):
            return found
    processes = count(ran.environment, PROCESS_VARIABLE)
    if processes:
        return _possible(_pods_of_processes(processes, ran, labels, asked))
    flags = dict(_launcher_flags(ran))
    for name in NODE_FLAGS & flags.keys():
        if found := _nodes(flags[name]):
            return found
    for name in PROCESS_FLAGS & flags.keys():
        if found := count(flags, name):
            return _possible(-(-found // asked.gpus))
    return None


def pods_grouped(labels: Mapping[str, str], annotations: Mapping[str, str]) -> int | None:
    """What the owner's labels and annotations on the pod say."""
    told = {**labels, **annotations}
    for name in (*GROUP_SIZES, REPLICATED):
        if found := _possible(count(told, name)):
            return found
    return None


def _pods_of_processes(
    processes: int, ran: StartedCommand, labels: Mapping[str, str], asked: PodGpus
) -> int | None:
    """``WORLD_SIZE`` counts processes: one a GPU, unless something says how many a pod has.

    The operator of Kubeflow counts one a pod where the job does not say, and fewer processes than
    a pod has GPUs can only be pods.
    """
    for name in PROCESSES_A_POD:
        if per_pod := count(ran.environment, name):
            return -(-processes // per_pod)
    if KUBEFLOW in labels or processes < asked.gpus:
        return processes
    return -(-processes // asked.gpus)


def _launcher_flags(ran: StartedCommand) -> Iterator[tuple[str, str]]:
    for command in ran.commands:
        launch = launch_of(command.words)
        for name, value, following in said(launch.before) if launch is not None else ():
            text = value if value is not None else next(iter(following), "")
            yield flag_of(name), text


def _nodes(text: str) -> int | None:
    match = _NODES.fullmatch(text.strip())
    return _possible(int(match[1])) if match is not None else None


def _possible(pods: int | None) -> int | None:
    return pods if pods is not None and 1 <= pods <= MAX_PODS else None
