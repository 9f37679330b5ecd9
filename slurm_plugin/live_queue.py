"""What runs and waits in Slurm at this moment, for the capacity report, and when it ends."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from predictor.identify.rules import RuleContext
from predictor.site.capacity.live import Live, LiveJob, pools_of_nodes
from predictor.site.expected_starts import ExpectedTime, drawn_s, estimated, limit_left_s, replayed
from predictor.site.replay import Away
from predictor.site.similar.memory import SiteMemory
from predictor.site.similar.request import JobRequest, stated_fields

from .cluster import SlurmJob, SlurmNode
from .config import SlurmHardware, SlurmPolicy, policy_at, rules_of
from .constraints import parse
from .errors import SourceError
from .history.ingest import GpuNames, Runs
from .limit import MIB, MINUTE_S, job_estimate
from .live_waits import Waiters, Waiting, waiting_of
from .mark import JobMark, parse_mark
from .nodes import gpu_named, gpu_of
from .sources.choose import open_source
from .sources.commands import Commands
from .sources.text import pairs
from .sources.words import expand, listed, stated, unix_s
from .watch.reports import progress_of

_CPUS = re.compile(r"\bcpu=(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmReservation:
    """Nodes kept from ``begin_s`` to ``end_s`` (Unix seconds); ``whole`` with all their CPUs.

    One that is ``floating`` begins so much later than now, whenever that is.
    """

    name: str
    nodes: frozenset[str]
    begin_s: float
    end_s: float
    whole: bool = True
    floating: bool = False


def reservations_of(commands: Commands) -> tuple[SlurmReservation, ...]:
    """Those of nodes, by name; raises SourceError."""
    lines = commands.text("scontrol", "-a", "show", "reservation", "-o").splitlines()
    shown = [pairs(line) for line in lines if line.startswith("ReservationName=")]
    if not shown:
        return ()
    sizes = map(str.split, commands.text("sinfo", "-h", "-a", "-N", "-o", "%N %c").splitlines())
    cpus = {name: int(number) for name, number in sizes if number.isdecimal()}
    found = []
    for one in shown:
        nodes = frozenset(expand(stated(one.get("Nodes", ""))))
        begin_s, end_s = (unix_s(one.get(key, "")) for key in ("StartTime", "EndTime"))
        if not nodes or begin_s is None or end_s is None or begin_s >= end_s:
            continue
        kept = _CPUS.search(one.get("TRES", ""))
        reservation = SlurmReservation(
            name=one["ReservationName"],
            nodes=nodes,
            begin_s=begin_s,
            end_s=end_s,
            whole=kept is None or int(kept[1]) >= sum(cpus.get(node, 0) for node in nodes),
            floating="TIME_FLOAT" in listed(one.get("Flags", "")),
        )
        found.append(reservation)
    return tuple(sorted(found, key=lambda one: one.name))


@dataclass(frozen=True, slots=True)
class Place:
    """GPUs of one type on a node: ``kind`` is Slurm's type, ``name`` that of predictions."""

    node: SlurmNode
    kind: str | None
    name: str
    count: int


class Places:
    """Where jobs can run; nodes that are down take none."""

    def __init__(self, nodes: Iterable[SlurmNode], hardware: SlurmHardware) -> None:
        found = tuple(nodes)
        self._hardware = hardware
        self._named = GpuNames(found, hardware)
        self.usable: list[Place] = []
        for node in found:
            for gres in node.gpus if node.usable else ():
                gpu = gpu_of(node, gres, hardware)
                name = (gres.type or "unknown") if gpu is None else gpu.name
                self.usable.append(Place(node, gres.type, name, gres.count))

    def gpu_type(self, job: SlurmJob) -> str | None:
        """The GPU a job has, or the only one its partitions and constraint leave it, or None.

        A type of Slurm that means several GPUs counts as the one there is most of.
        """
        if job.node_names:
            return self._named(job.gpu_type, job.node_names)
        constraint = parse(job.features) if job.features else None
        counts: Counter[str] = Counter()
        for place in self.usable:
            if (
                job.gpu_type in (None, place.kind)
                and not set(job.partitions).isdisjoint(place.node.partitions)
                and (constraint is None or constraint.matches(place.node.features))
            ):
                counts[place.name] += place.count
        if not counts and job.gpu_type is not None:
            known = gpu_named(job.gpu_type, self._hardware)
            return job.gpu_type if known is None else known.name
        if len(counts) == 1 or job.gpu_type is not None:
            return counts.most_common(1)[0][0]
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptGpus:
    """GPUs away by type in Unix seconds, the nodes that are kept now, and a line on each."""

    away: tuple[Away, ...] = ()
    nodes: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def kept(
    reservations: Iterable[SlurmReservation], places: Sequence[Place], at_s: float
) -> KeptGpus:
    """What they keep from ``at_s`` on; those of parts of nodes only get a note."""
    away: list[Away] = []
    notes: list[str] = []
    nodes: set[str] = set()
    for one in reservations:
        gpus: Counter[str] = Counter()
        for place in places:
            gpus[place.name] += place.count if place.node.name in one.nodes else 0
        gpus = +gpus
        if not gpus or one.end_s <= at_s:
            continue
        what = ", ".join(f"{count} x {name}" for name, count in sorted(gpus.items()))
        if one.floating or not one.whole:
            how = "floats" if one.floating else "takes some cores of its nodes"
            notes.append(f"Reservation {one.name} of {what} {how}: not simulated.")
            continue
        begin, end = (
            f"{datetime.fromtimestamp(s, UTC):%Y-%m-%d %H:%M}" for s in (one.begin_s, one.end_s)
        )
        begins = "" if one.begin_s <= at_s else f" from {begin}"
        notes.append(f"Reservation {one.name} keeps {what}{begins} until {end} UTC.")
        away += [
            Away(pool=name, gpus=count, from_s=one.begin_s, until_s=one.end_s)
            for name, count in gpus.items()
        ]
        nodes |= one.nodes if one.begin_s <= at_s else set()
    return KeptGpus(away=tuple(away), nodes=frozenset(nodes), notes=tuple(notes))


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
    queue = source.queue()
    places, reserved = Places(source.nodes(), policy.hardware), KeptGpus()
    try:
        reserved = kept(reservations_of(commands), places.usable, at_s)
    except SourceError as error:
        notes.append(f"Reservations are not known: {error}.")
    told: Mapping[str, Waiting] = {}
    try:
        told = waiting_of(commands)
    except SourceError as error:
        notes.append(f"What jobs wait for besides GPUs is not known: {error}.")
    waits, runs = Waiters(queue, told, at_s), Runs(rules_of(policy))
    return Live(
        scheduler="slurm",
        cluster=source.settings().cluster_name,
        at_s=at_s,
        jobs=tuple(_job(job, runs, places, waits, reserved) for job in queue if job.gpus),
        pools=pools_of_nodes((p.name, p.count) for p in places.usable),
        away=reserved.away,
        notes=(*notes, *reserved.notes),
    )


def _job(job: SlurmJob, runs: Runs, places: Places, waits: Waiters, reserved: KeptGpus) -> LiveJob:
    named: dict[str, Any] = {"name": job.name, "user": job.user, "account": job.account}
    named["partition"] = job.partitions[0]
    asked = runs.asked(job.comment, job.admin_comment, RuleContext(**named)).text
    mark = parse_mark(job.admin_comment) or JobMark()
    own_min = job.limit_min if mark.own is None else mark.own_min
    pending = job.state == "PENDING"
    return LiveJob(
        job_id=job.label,
        request=JobRequest(
            **named,
            gpus=job.gpus,
            gpu_type=places.gpu_type(job) or "",
            cpus=mark.cpus,
            memory_bytes=None if mark.mem is None else mark.mem * MIB,
            limit_s=None if own_min in (None, math.inf) else own_min * MINUTE_S,
            script=mark.script or "",
            command=mark.command or "",
            directory=job.work_dir,
            **stated_fields(asked),
        ),
        submit_s=job.submit_s,
        start_s=None if pending else job.start_s,
        limit_s=None if job.limit_min is None else job.limit_min * MINUTE_S,
        nodes=job.nodes,
        priority=job.priority,
        held=job.held,
        array=job.label.partition("_")[0],
        reserved=not reserved.nodes.isdisjoint(job.node_names),
        waits=waits(job),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEta:
    """One job: when it starts (started) and ends, and what that rests on; None where unknown."""

    job_id: str
    user: str
    name: str
    state: str
    gpus: int
    start: ExpectedTime | None
    end: ExpectedTime | None
    basis: str


def etas(live: Live, queue: Iterable[SlurmJob], memory: SiteMemory) -> tuple[JobEta, ...]:
    """Of all GPU jobs of a queue, running ones by their end, then pending ones by their start."""
    known = {job.label: job for job in queue}
    steps_s = {
        job.label: mark.steps_s for job in known.values() if (mark := parse_mark(job.admin_comment))
    }
    estimates = estimated(
        live, memory, lambda job: job_estimate(job.request, memory, steps_s.get(job.job_id))
    )
    run_s, bases = drawn_s(live, estimates), list[str]()
    for at, (job, estimate) in enumerate(zip(live.jobs, estimates, strict=True)):
        by = ["physics"] if estimate.physics else []
        by += [f"{one.seen} runs {one.similarity.words}" for one in estimate.similar[:1]]
        basis = " and ".join(by) or ("limit" if job.request.limit_s else "nothing known")
        told = _printed(job, known.get(job.job_id), live.at_s)
        if told is not None:
            run_s[at], basis = told
        bases.append(basis)
    starts = live.at_s + replayed(live, run_s, live.pools).start_s
    found = []
    for at, job in enumerate(live.jobs):
        waits = job.start_s is None
        start_s = starts[at] if waits else np.full_like(run_s[at], job.start_s)
        reason = job.waits.never or ("held" if job.held else "") or job.waits.text
        eta = JobEta(
            job_id=job.job_id,
            user=job.request.user,
            name=job.request.name,
            state="PD" if waits else "R",
            gpus=job.request.gpus,
            start=ExpectedTime.of(start_s),
            end=ExpectedTime.of((start_s if waits else live.at_s) + run_s[at]),
            basis="; ".join(part for part in (bases[at], reason) if part),
        )
        found.append(eta)
    far = float("inf")
    return tuple(sorted(found, key=lambda e: (e.state != "R", e.end.expected_s if e.end else far)))


def _printed(job: LiveJob, record: SlurmJob | None, now_s: float) -> tuple[float, str] | None:
    """Seconds that a job still runs as its output says, and what that says."""
    if record is None or job.start_s is None:
        return None
    reading = progress_of(record, job.request.asked)
    if reading.remaining_s is None:
        return None
    of = "" if reading.total is None else f" of {reading.total:g}"
    read_s = time.time() - now_s  # many outputs take a while to read
    left_s = min(reading.remaining_s + read_s, limit_left_s(job, now_s))
    return max(1.0, left_s), f"printed: {reading.unit} {reading.at:g}{of}"
