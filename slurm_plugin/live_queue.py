"""What runs and waits in Slurm at this moment, for the capacity report."""

from __future__ import annotations

import time

from predictor.identify.rules import RuleContext
from predictor.site.capacity.live import Live, LiveJob, NodeGpus, pools_of_nodes

from .cluster import SlurmJob
from .config import SlurmPolicy
from .daemon.loading import policy_at, rules_of
from .errors import SourceError
from .history.runs import Runs
from .limit import MINUTE_S
from .live_places import Places
from .live_reservations import KeptGpus, kept
from .live_waits import Waiters
from .sources import reservations_text, waits_text
from .sources.choose import open_source
from .sources.commands import Commands

SCHEDULER = "slurm"


def live() -> Live:
    """The queue and the GPUs of this cluster, by the default policy file.

    Raises SourceError where Slurm does not answer.
    """
    return read(policy_at(None))


def read(policy: SlurmPolicy) -> Live:
    """The same by a policy; its rules tell what a job is that does not say it.

    Where what jobs wait for, or reservations, cannot be read, a note says so.
    """
    source, commands = open_source(policy.slurm), Commands.of(policy.slurm)
    at_s, notes = time.time(), list[str]()
    queue, nodes = source.queue(), source.nodes()
    places = Places(nodes, policy.hardware)
    reserved = _reserved(commands, places, at_s, notes)
    waits = _waiters(commands, queue, at_s, notes)
    runs = Runs(rules_of(policy))
    return Live(
        scheduler=SCHEDULER,
        cluster=source.settings().cluster_name,
        at_s=at_s,
        jobs=tuple(_job(job, runs, places, waits, reserved) for job in queue if job.gpus),
        pools=pools_of_nodes(tuple(NodeGpus(p.name, p.count) for p in places.usable)),
        away=reserved.away,
        notes=(*notes, *reserved.notes),
    )


def _reserved(commands: Commands, places: Places, at_s: float, notes: list[str]) -> KeptGpus:
    try:
        return kept(reservations_text.read(commands), places.usable, at_s)
    except SourceError as error:
        notes.append(f"Reservations are not known: {error}.")
        return KeptGpus()


def _waiters(
    commands: Commands, queue: tuple[SlurmJob, ...], at_s: float, notes: list[str]
) -> Waiters:
    try:
        told = waits_text.read(commands)
    except SourceError as error:
        notes.append(f"What jobs wait for besides GPUs is not known: {error}.")
        told = {}
    return Waiters(queue, told, at_s)


def _job(job: SlurmJob, runs: Runs, places: Places, waits: Waiters, reserved: KeptGpus) -> LiveJob:
    context = RuleContext(
        name=job.name, user=job.user, account=job.account, partition=job.partitions[0]
    )
    pending = job.state == "PENDING"
    return LiveJob(
        job_id=job.label,
        name=job.name,
        user=job.user,
        account=job.account,
        partition=job.partitions[0],
        submit_s=job.submit_s,
        start_s=None if pending else job.start_s,
        limit_s=None if job.limit_min is None else job.limit_min * MINUTE_S,
        gpus=job.gpus,
        gpu_type=places.gpu_type(job),
        nodes=job.nodes,
        asked=runs.asked(job.comment, job.admin_comment, context).text,
        priority=job.priority,
        held=job.held,
        array=job.label.partition("_")[0],
        reserved=not reserved.nodes.isdisjoint(job.node_names),
        waits=waits(job),
    )
