"""What runs and waits in Slurm at this moment, for the capacity report."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from predictor.capacity.live import Live, LiveJob, NodeGpus, pools_of_nodes
from predictor.identify.rules import RuleContext

from .cluster import Node, QueuedJob
from .config import Hardware, Policy
from .constraints import Constraint, parse
from .daemon.loading import policy_at, rules_of
from .hardware import gpu_named, gpu_of
from .history.gpus import GpuNames
from .history.runs import Runs
from .limit import MINUTE_S
from .sources.choose import open_source

SCHEDULER = "slurm"
UNTYPED = "gpu"


def live() -> Live:
    """The queue and the GPUs of this cluster, by the default policy file.

    Raises SourceError where Slurm does not answer.
    """
    return read(policy_at(None))


def read(policy: Policy) -> Live:
    """The same by a policy; its rules tell what a job is that does not say it."""
    source = open_source(policy.slurm)
    at_s = time.time()
    queue, nodes = source.queue(), source.nodes()
    places = Places(nodes, policy.hardware)
    runs = Runs(rules_of(policy))
    return Live(
        scheduler=SCHEDULER, cluster=source.settings().cluster_name, at_s=at_s,
        jobs=tuple(_job(job, runs, places) for job in queue if job.gpus),
        pools=pools_of_nodes(tuple(NodeGpus(p.name, p.count) for p in places.usable)),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """GPUs of one type on a node: ``kind`` is Slurm's type, ``name`` that of predictions."""

    node: Node
    kind: str | None
    name: str
    count: int


class Places:
    """Where jobs can run; nodes that are down take none."""

    def __init__(self, nodes: Iterable[Node], hardware: Hardware) -> None:
        found = tuple(nodes)
        self._hardware = hardware
        self._named = GpuNames(found, hardware)
        self.usable = tuple(_places(found, hardware))

    def gpu_type(self, job: QueuedJob) -> str | None:
        """The GPU a job has, or the only one its partitions and constraint leave it, or None.

        A type of Slurm that means several GPUs counts as the one there is most of.
        """
        if job.node_names:
            return self._named(job.gpu_type, job.node_names)
        constraint = parse(job.features) if job.features else None
        counts: Counter[str] = Counter()
        for place in self.usable:
            if _allows(place, job, constraint):
                counts[place.name] += place.count
        if not counts and job.gpu_type is not None:
            known = gpu_named(job.gpu_type, self._hardware)
            return job.gpu_type if known is None else known.name
        if len(counts) == 1 or job.gpu_type is not None:
            return counts.most_common(1)[0][0]
        return None


def _places(nodes: Iterable[Node], hardware: Hardware) -> Iterator[Place]:
    for node in nodes:
        for gres in node.gpus if node.usable else ():
            gpu = gpu_of(node, gres, hardware)
            name = (gres.type or UNTYPED) if gpu is None else gpu.name
            yield Place(node, gres.type, name, gres.count)


def _allows(place: Place, job: QueuedJob, constraint: Constraint | None) -> bool:
    return (
        job.gpu_type in (None, place.kind)
        and not set(job.partitions).isdisjoint(place.node.partitions)
        and (constraint is None or constraint.matches(place.node.features))
    )


def _job(job: QueuedJob, runs: Runs, places: Places) -> LiveJob:
    context = RuleContext(
        name=job.name, user=job.user, account=job.account, partition=job.partitions[0]
    )
    waits = job.state == "PENDING"
    return LiveJob(
        job_id=job.label, name=job.name, user=job.user, account=job.account,
        partition=job.partitions[0], submit_s=job.submit_s,
        start_s=None if waits else job.start_s,
        limit_s=None if job.limit_min is None else job.limit_min * MINUTE_S, gpus=job.gpus,
        gpu_type=places.gpu_type(job), nodes=job.nodes,
        asked=runs.asked(job.comment, job.admin_comment, context).text,
        priority=job.priority, held=job.held,
    )  # fmt: skip
