"""When a job that is not in the queue yet would start, by a replay of those before it.

Running jobs hold their GPUs as long as was estimated of them, else until their limit; pending ones
follow by priority with backfill (predictor.site.replay), then those that came since, in the order
they came in. Where we order the queue a job also comes behind a share of the pending jobs alone.
Partition tiers, reservations, dependencies, later changes of priority and preemption are not seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from operator import itemgetter

import numpy as np

from predictor.site.history.cells import UNLIMITED_S
from predictor.site.replay import Floats, Pool, Trace, replay
from predictor.site.replay.trace import Share
from predictor.units import HOUR_S

from .cluster import Cluster, SlurmJob
from .constraints import parse
from .mark import parse_mark
from .nodes import GpuRequest
from .order import BASE

# How long a job holds its GPUs that is over its limit or completing: slurmctld looks every 30 s.
OVERDUE_S = 30.0
# Of the pending jobs, what is before a new one that may not be the last.
SHARES = (0.0, 0.25, 0.5, 0.75)


@dataclass(frozen=True, slots=True)
class _Row:
    """A job of the replay: where it may run, its GPUs, its limit, and how long it will run."""

    may: tuple[bool, ...]
    gpus: int
    limit_s: float
    run_s: float
    runs: bool = False


@dataclass(frozen=True, slots=True)
class PoolAhead:
    """GPUs of one type on nodes that are alike."""

    partitions: frozenset[str]
    features: frozenset[str]
    gpu_type: str | None
    names: frozenset[str]
    per_node: int

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.per_node * len(self.names)

    def takes(self, job: SlurmJob) -> bool:
        """Whether a pending job may run here, at some time."""
        constraint = parse(job.features) if job.features else None
        return (
            not self.partitions.isdisjoint(job.partitions)
            and job.gpu_type in (None, self.gpu_type)
            and (constraint is None or constraint.matches(self.features))
            and job.gpus <= self.gpus
            and -(-job.gpus // max(1, job.nodes)) <= self.per_node
        )


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job that is not in the queue yet: where it may run, and its limit; how long it will run.

    All pending jobs are before it but those far below its ``priority``.
    """

    wanted: GpuRequest
    nodes: frozenset[str]
    partitions: Sequence[str]
    limit_s: float = HOUR_S
    run_s: float = HOUR_S
    priority: float = 0

    def fits(self, pool: PoolAhead) -> bool:
        """Whether it may run there."""
        return (
            not pool.partitions.isdisjoint(self.partitions)
            and self.wanted.type in (None, pool.gpu_type)
            and 0 < self.wanted.gpus <= pool.per_node * len(pool.names & self.nodes)
            and (self.wanted.gpus_per_node or 1) <= pool.per_node
        )


class _Room:
    """What jobs are expected to leave of a pool, as time goes on.

    ``nodes`` (times, GPUs): how many have so many GPUs free, or more, from each of ``times_s`` on.
    """

    def __init__(self, pool: PoolAhead, held: Sequence[tuple[float, float, Share]]) -> None:
        """The room beside what is ``held``: from when, until when, and where."""
        parts = [(begin, end, *part) for begin, end, share in held for part in share]
        begin_s, end_s, node, gpus = np.array(parts).reshape(-1, 4).T
        self.times_s: Floats = np.unique([0.0, *begin_s, *end_s])
        free = np.zeros((len(self.times_s), len(pool.names)))
        free[0] = pool.per_node
        for moment_s, change in ((begin_s, -gpus), (end_s, gpus)):
            np.add.at(free, (np.searchsorted(self.times_s, moment_s), node.astype(int)), change)
        free = free.cumsum(axis=0)
        self.nodes = np.stack([(free >= n).sum(axis=1) for n in range(pool.per_node + 1)], axis=1)

    def earliest_s(self, gpus: int, limit_s: float) -> float:
        """When so many are free for so long."""
        whole, rest = divmod(gpus, self.nodes.shape[1] - 1)
        fits = (self.nodes[:, -1] >= whole) & (self.nodes[:, rest] >= whole + (rest > 0))
        full = np.flatnonzero(~fits)
        ends = np.searchsorted(full, np.arange(len(fits)))
        until_s = np.append(self.times_s[full], inf)[ends]
        return float(self.times_s[np.argmax(fits & (until_s - self.times_s >= limit_s))])

    def hold(self, from_s: float, until_s: float, gpus: int) -> None:
        """Take so many for that time: whole nodes first, the rest where it leaves the least."""
        first, last = self._at(from_s), self._at(until_s)
        part = self.nodes[first:last]
        whole, rest = divmod(gpus, part.shape[1] - 1)
        part[:, 1:] -= whole
        if rest:
            alike = part[:, rest:] > np.pad(part[:, rest + 1 :], ((0, 0), (0, 1)))
            left = alike.argmax(axis=1)[:, None]
            sizes = np.arange(part.shape[1])
            part -= (sizes > left) & (sizes <= left + rest)
        np.maximum(part, 0, out=part)

    def _at(self, moment_s: float) -> int:
        at = int(np.searchsorted(self.times_s, moment_s))
        if at == len(self.times_s) or self.times_s[at] > moment_s:
            nodes = np.insert(self.nodes, at, self.nodes[at - 1], axis=0)
            self.times_s, self.nodes = np.insert(self.times_s, at, moment_s), nodes
        return at


@dataclass(frozen=True, slots=True)
class QueueAhead:
    """What a new job finds before it since one view of Slurm, taken at ``taken_s`` (Unix seconds).

    ``rooms`` are what is left of each pool to jobs with a priority above a number, the highest
    first.
    """

    taken_s: float = 0.0
    pools: tuple[PoolAhead, ...] = ()
    rooms: tuple[tuple[float, tuple[_Room, ...]], ...] = ()

    @classmethod
    def of(cls, cluster: Cluster) -> QueueAhead:
        """Replay the queue of a view: for ten thousand jobs 1.2 s, 3 s where we order it."""
        pools = _pools(cluster)
        if not pools:
            return cls()
        running = tuple(_running(cluster, pools))
        # Pending jobs for GPUs, in the order in which they would start.
        jobs = [j for j in cluster.queue if j.state == "PENDING" and j.gpus > 0 and not j.held]
        jobs.sort(key=lambda job: (-job.priority, job.submit_s, job.job_id))
        pending = [
            _Row(tuple(p.takes(job) for p in pools), job.gpus, _limit_s(job), _run_s(job))
            for job in jobs
        ]
        ordered = bool(jobs) and jobs[0].priority >= BASE // 2
        before = sorted({int(len(jobs) * share) for share in SHARES}) if ordered else ()
        parts = [*((float(jobs[n].priority), n) for n in before), (-inf, len(jobs))]
        rooms = ((least, _left(pools, (*running, *pending[:n]))) for least, n in parts)
        return cls(cluster.taken_s, pools, tuple(rooms))

    def wait(self, job: NewJob) -> float | None:
        """Seconds from the view that a job would wait; None where no usable nodes ever hold it."""
        rooms = next((rooms for least, rooms in self.rooms if job.priority > least), ())
        return self._start(job, rooms)[0]

    def add(self, job: NewJob) -> None:
        """A job has come: it is before those to come that stand no higher."""
        for least, rooms in self.rooms:
            from_s, room = self._start(job, rooms if job.priority > least else ())
            if from_s is not None and room is not None:
                room.hold(from_s, from_s + job.run_s, job.wanted.gpus)

    def _start(
        self, job: NewJob, rooms: Iterable[_Room]
    ) -> tuple[float, _Room] | tuple[None, None]:
        """When and where a job starts; None where it never does."""
        both = zip(self.pools, rooms, strict=False)
        found = [(r.earliest_s(job.wanted.gpus, job.limit_s), r) for p, r in both if job.fits(p)]
        return min(found, key=itemgetter(0), default=(None, None))


def _left(pools: Sequence[PoolAhead], before: Iterable[_Row]) -> tuple[_Room, ...]:
    """What some jobs leave of the pools."""
    rows = [row for row in before if any(row.may)]
    may = np.array([row.may for row in rows], dtype=bool).reshape(len(rows), len(pools))
    run_s = np.array([row.run_s for row in rows])
    trace = Trace(
        submit_s=np.zeros(len(rows)),
        gpus=np.array([row.gpus for row in rows], dtype=np.int64),
        limit_s=np.array([row.limit_s for row in rows]),
        run_s=np.where(may, run_s[:, None], np.nan),
        priority=np.arange(len(rows), 0, -1),
        runs=np.array([row.runs for row in rows], dtype=bool),
    )
    played = [
        Pool(name=str(at), gpus=p.gpus, gpus_per_node=p.per_node) for at, p in enumerate(pools)
    ]
    found = replay(trace, played)
    spans = [*zip(found.start_s.tolist(), found.end_s.tolist(), found.shares, strict=True)]
    return tuple(
        _Room(pool, [spans[row] for row in np.flatnonzero(found.pool == at)])
        for at, pool in enumerate(pools)
    )


def _pools(cluster: Cluster) -> tuple[PoolAhead, ...]:
    down = {part.name for part in cluster.partitions if not part.up}
    alike: dict[tuple[frozenset[str], frozenset[str], str | None, int], set[str]] = {}
    for node in cluster.nodes:
        for gres in node.gpus if node.usable else ():
            kind = (frozenset(node.partitions) - down, node.features, gres.type, gres.count)
            if gres.count:
                alike.setdefault(kind, set()).add(node.name)
    return tuple(
        PoolAhead(partitions, features, kind, frozenset(names), count)
        for (partitions, features, kind, count), names in alike.items()
    )


def _alone(at: int, pools: Sequence[PoolAhead]) -> tuple[bool, ...]:
    return tuple(place == at for place in range(len(pools)))


def _running(cluster: Cluster, pools: Sequence[PoolAhead]) -> Iterable[_Row]:
    """What holds GPUs now, a row for each job and pool; and those in use by no job we see."""
    at = {(name, pool.gpu_type): place for place, pool in enumerate(pools) for name in pool.names}
    left: Counter[str] = Counter({node.name: node.gpus_used for node in cluster.nodes})
    kinds = {node.name: node for node in cluster.nodes}
    for job in cluster.queue:
        if job.state == "PENDING" or not job.gpus or not job.node_names:
            continue
        held: Counter[int] = Counter()
        each, more = divmod(job.gpus, len(job.node_names))
        for number, name in enumerate(job.node_names):
            node = kinds.get(name)
            one = node.gpus[0].type if node is not None and node.gpus else None
            place = at.get((name, job.gpu_type or one))
            if place is not None:
                held[place] += each + (number < more)
                left[name] -= each + (number < more)
        ran_s = 0.0 if job.start_s is None else cluster.taken_s - job.start_s
        limit_s = max(OVERDUE_S, _limit_s(job) - ran_s)
        run_s = max(OVERDUE_S, min(_run_s(job, ran_s) - ran_s, limit_s))
        for place, gpus in held.items():
            yield _Row(_alone(place, pools), min(gpus, pools[place].gpus), limit_s, run_s, True)
    unseen: Counter[int] = Counter()
    for name, gpus in left.items():
        node = kinds[name]
        place = at.get((name, node.gpus[0].type)) if node.gpus else None
        if place is not None and gpus > 0:
            unseen[place] += gpus
    for place, gpus in unseen.items():
        gpus = min(gpus, pools[place].gpus)
        yield _Row(_alone(place, pools), gpus, UNLIMITED_S, UNLIMITED_S, True)


def _limit_s(job: SlurmJob) -> float:
    return UNLIMITED_S if job.limit_min is None else job.limit_min * 60.0


def _run_s(job: SlurmJob, ran_s: float = 0.0) -> float:
    """By the estimate on the job: its mean, once that is over what 19 of 20 need."""
    limit_s, mark = _limit_s(job), parse_mark(job.admin_comment)
    known = mark.ends_s if mark is not None else None
    return min(limit_s, next((each for each in known or () if each > ran_s), limit_s))
