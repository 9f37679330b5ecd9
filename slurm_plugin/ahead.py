"""When a job that is not in the queue yet would start, by a replay of those before it.

Running jobs hold their GPUs as long as was estimated of them, else until their limit; pending ones
follow by priority with backfill (predictor.site.replay); probes of each size come last. Where we
order the queue they also come behind a share of the pending jobs alone. Partition tiers,
reservations, dependencies, later changes of priority and preemption are not seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from predictor.site.replay import Pool, Trace, replay

from .cluster import Cluster, SlurmJob
from .constraints import parse
from .mark import parse_mark
from .nodes import GpuRequest
from .order import BASE

# How long slurmctld's own backfill takes an unlimited job to run (backfill.c, one year).
UNLIMITED_S = 365 * 86_400.0
# How long a job holds its GPUs that is over its limit or completing: slurmctld looks every 30 s.
OVERDUE_S = 30.0
# Probes fit into gaps of these lengths, and leave them at once to the next probe.
HOUR_S = 3600.0
PROBE_LIMITS_S, PROBE_S = tuple(HOUR_S * hours for hours in (1, 4, 12, 24, 72)), 0.0
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
    """GPUs of one type on nodes that are alike.

    ``start_s`` by the GPUs that a new job asks for, one for each limit of the probes.
    """

    partitions: frozenset[str]
    features: frozenset[str]
    gpu_type: str | None
    names: frozenset[str]
    per_node: int
    start_s: tuple[tuple[int, tuple[float, ...]], ...] = ()

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
class QueueAhead:
    """What a new job finds before it, at the moment of one view of Slurm.

    ``over`` is what one finds whose priority is above the number beside it, fewest first.
    """

    pools: tuple[PoolAhead, ...] = ()
    over: tuple[tuple[int, tuple[PoolAhead, ...]], ...] = ()

    @classmethod
    def of(cls, cluster: Cluster) -> QueueAhead:
        """Replay the queue of a view: for ten thousand jobs 1.5 s, 4 s where we order it."""
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
        before = {int(len(jobs) * share) for share in SHARES} if ordered else ()
        return cls(
            _played(pools, (*running, *pending)),
            tuple(
                (jobs[n].priority, _played(pools, (*running, *pending[:n]))) for n in sorted(before)
            ),
        )

    def wait(
        self,
        wanted: GpuRequest,
        nodes: frozenset[str],
        partition: str,
        limit_s: float = HOUR_S,
        priority: float = 0,
    ) -> float | None:
        """Seconds a job with this limit would wait on ``nodes`` of ``partition``.

        All pending jobs are before it but those far below its ``priority``. None where no usable
        nodes could ever hold it.
        """
        long = sum(limit_s > each for each in PROBE_LIMITS_S[:-1])
        found = [
            start_s[long]
            for pool in next((p for least, p in self.over if priority > least), self.pools)
            if partition in pool.partitions
            and wanted.type in (None, pool.gpu_type)
            and wanted.gpus <= pool.per_node * len(pool.names & nodes)
            and (wanted.gpus_per_node or 1) <= pool.per_node
            for start_s in [next(s for size, s in pool.start_s if size >= wanted.gpus)]
        ]
        return min(found, default=None) if wanted.gpus > 0 else None


def _played(pools: Sequence[PoolAhead], before: Iterable[_Row]) -> tuple[PoolAhead, ...]:
    """The pools with the starts of probes behind some jobs."""
    probes = [
        _Row(_alone(at, pools), size, limit_s, PROBE_S)
        for at, pool in enumerate(pools)
        for size in _sizes(pool)
        for limit_s in PROBE_LIMITS_S
    ]
    rows = (*(row for row in before if any(row.may)), *probes)
    may = np.array([row.may for row in rows])
    run_s = np.array([row.run_s for row in rows])
    trace = Trace(
        submit_s=np.zeros(len(rows)),
        gpus=np.array([row.gpus for row in rows], dtype=np.int64),
        limit_s=np.array([row.limit_s for row in rows]),
        run_s=np.where(may, run_s[:, None], np.nan),
        priority=np.arange(len(rows), 0, -1),
        runs=np.array([row.runs for row in rows]),
    )
    played = [
        Pool(name=str(at), gpus=p.gpus, gpus_per_node=p.per_node) for at, p in enumerate(pools)
    ]
    starts = iter(map(float, replay(trace, played).start_s[-len(probes) :]))
    told = (
        tuple((size, tuple(next(starts) for _ in PROBE_LIMITS_S)) for size in _sizes(pool))
        for pool in pools
    )
    return tuple(replace(p, start_s=s) for p, s in zip(pools, told, strict=True))


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


def _sizes(pool: PoolAhead) -> tuple[int, ...]:
    """GPUs of the probes: all that fit into a node, then 2, 4, 8 ... nodes, and all there are."""
    doublings = range(1, (len(pool.names) - 1).bit_length())
    larger = {pool.per_node * 2**n for n in doublings} | {pool.gpus}
    return tuple(sorted({*range(1, pool.per_node + 1), *larger}))


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
