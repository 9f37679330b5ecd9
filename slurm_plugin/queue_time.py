"""When a job that is not in the queue yet would start.

A list scheduler over GPUs: running jobs hold theirs until their limit, pending ones take, in order
of priority, those that are free first, and ours comes after those before it. Gaps in front of a
job that waits for many GPUs are not filled (no backfill).
Partition tiers, reservations, dependencies, later changes of priority and preemption are not seen.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .cluster import Cluster, QueuedJob
from .constraints import parse
from .gpu_timeline import NEVER, Need, Rows, Timeline

# Pending jobs placed one by one; those after them are reckoned in GPU seconds.
MAX_PLACED = 2_000
# States of the model kept, one for each number of jobs ahead that was asked about.
MAX_STATES = 32
# How long slurmctld's own backfill takes an unlimited job to run (backfill.c, one year).
UNLIMITED_S = 365 * 86_400.0
# How long a job holds its GPUs that is over its limit or completing: slurmctld looks every 30 s.
OVERDUE_S = 30.0

RunTime = Callable[[QueuedJob], float]


@dataclass(frozen=True, slots=True)
class Wait:
    """How long a job waits, in seconds, why, and how many pending jobs are before it.

    ``reason`` is ``idle GPUs``, ``running jobs`` or ``behind 12 jobs``.
    """

    seconds: float
    reason: str
    jobs_ahead: int = 0


@dataclass(frozen=True, slots=True)
class _Place:
    """Which rows a job may take: by partition, GRES type and constraint."""

    partitions: tuple[str, ...]
    gpu_type: str | None
    features: str


@dataclass(frozen=True, slots=True)
class _Pending:
    priority: int
    place: _Place
    need: Need
    run_s: float


@dataclass(frozen=True, slots=True)
class _State:
    """The GPUs after all jobs ahead: those placed, those only reckoned (GPU seconds)."""

    timeline: Timeline
    placed: Counter[_Place]
    reckoned: Counter[_Place]
    reckoned_gpu_s: defaultdict[_Place, float]


def expected_wait_s(
    cluster: Cluster,
    gpus: int,
    gpus_per_node: int | None,
    nodes: frozenset[str],
    partition: str,
    now: float,
    priority: int | None = None,
    run_time: RunTime | None = None,
) -> Wait | None:
    """One answer of a QueueModel; make the model once where more than one is wanted."""
    model = QueueModel(cluster, now=now, run_time=run_time)
    return model.wait(gpus, gpus_per_node, nodes, partition, priority=priority)


class QueueModel:
    """The queue of one view of a cluster.

    ``now`` (Unix seconds) is the view's own time where it is not given. ``run_time`` tells how
    many seconds a job is expected to run in all; it counts where it is below the job's limit. A
    running job that outlived it is taken to run until its limit. The first answer for a set of
    connected partitions places their pending jobs; later ones only look.
    """

    def __init__(
        self, cluster: Cluster, *, now: float | None = None, run_time: RunTime | None = None
    ) -> None:
        self._now = cluster.taken_s if now is None else now
        self._run_time = run_time
        down = {part.name for part in cluster.partitions if not part.up}
        usable = [node for node in cluster.nodes if node.usable and node.gpus]
        self._rows = [(node, gres) for node in usable for gres in node.gpus]
        self._open = [frozenset(node.partitions) - down for node, _ in self._rows]
        self._counts = np.array([gres.count for _, gres in self._rows], dtype=np.int64)
        self._by_place: dict[_Place, Rows] = {}
        self._asked: dict[tuple[_Place, frozenset[str]], Rows] = {}
        self._states: dict[tuple[frozenset[int], int | None], _State] = {}
        self._start = self._running(cluster)
        self._pending = self._in_order(cluster)
        self._group = self._connected()

    def wait(
        self,
        gpus: int,
        gpus_per_node: int | None,
        nodes: frozenset[str],
        partition: str,
        *,
        gpu_type: str | None = None,
        priority: int | None = None,
    ) -> Wait | None:
        """How long a job of ``gpus`` in all would wait on ``nodes`` of ``partition``.

        Jobs of the same or higher priority are before it, all jobs where ``priority`` is None.
        None where no usable nodes could ever hold it.
        """
        rows = self._allowed(_Place((partition,), gpu_type, ""), nodes)
        need = Need(gpus, gpus_per_node)
        if gpus < 1 or self._start.earliest(rows, need) == NEVER:
            return None
        state = self._state(frozenset(self._group[rows].tolist()), priority)
        shared = {place: self._shared(place, rows) for place in state.placed | state.reckoned}
        ahead = sum(state.placed[p] + state.reckoned[p] for p in shared if shared[p])
        work = sum(state.reckoned_gpu_s[p] * share for p, share in shared.items())
        seconds = state.timeline.earliest(rows, need) + work / float(self._counts[rows].sum())
        if seconds <= 0.0:
            return Wait(0.0, "idle GPUs", ahead)
        plural = "" if ahead == 1 else "s"
        return Wait(seconds, f"behind {ahead} job{plural}" if ahead else "running jobs", ahead)

    def _running(self, cluster: Cluster) -> Timeline:
        """The GPUs as running jobs leave them."""
        timeline = Timeline([gres.count for _, gres in self._rows])
        at: dict[str, list[int]] = {}
        for row, (node, _) in enumerate(self._rows):
            at.setdefault(node.name, []).append(row)
        for job in cluster.queue:
            if job.state == "PENDING" or not job.gpus or not job.node_names:
                continue
            until = self._release_s(job)
            each, more = divmod(job.gpus, len(job.node_names))
            for place, name in enumerate(job.node_names):
                left = each + (place < more)
                for row in at.get(name, ()):
                    if job.gpu_type in (None, self._rows[row][1].type):
                        left -= timeline.occupy(row, left, until)
        for rows in at.values():
            self._hold_unexplained(timeline, rows)
        return timeline

    def _hold_unexplained(self, timeline: Timeline, rows: list[int]) -> None:
        """GPUs in use by no job we see: as long as the node's other jobs, else without end."""
        known = [timeline.busy(row) for row in rows]
        left = self._rows[rows[0]][0].gpus_used - sum(held for held, _ in known)
        until = max(last for _, last in known) or UNLIMITED_S
        for row in rows:
            left -= timeline.occupy(row, max(0, left), until)

    def _release_s(self, job: QueuedJob) -> float:
        """Seconds until a running job ends."""
        if job.state == "COMPLETING":
            return OVERDUE_S
        started = self._now if job.start_s is None else job.start_s
        expected = started + self._duration_s(job) - self._now
        until_limit = started + _limit_s(job) - self._now
        return max(OVERDUE_S, expected if expected > 0.0 else until_limit)

    def _duration_s(self, job: QueuedJob) -> float:
        limit = _limit_s(job)
        return limit if self._run_time is None else max(0.0, min(limit, self._run_time(job)))

    def _in_order(self, cluster: Cluster) -> list[_Pending]:
        """Pending jobs for GPUs, in the order in which they would start."""
        jobs = [j for j in cluster.queue if j.state == "PENDING" and j.gpus > 0 and not j.held]
        jobs.sort(key=lambda job: (-job.priority, job.submit_s, job.job_id))
        widest = int(self._counts.max(initial=0))
        found = []
        for job in jobs:
            per_node = -(-job.gpus // max(1, job.nodes))
            need = Need(job.gpus, per_node if per_node <= widest else None)
            place = _Place(job.partitions, job.gpu_type, job.features)
            found.append(_Pending(job.priority, place, need, self._duration_s(job)))
        return found

    def _connected(self) -> Rows:
        """A label for each row, the same for rows that any pending jobs compete for."""
        labels = np.arange(len(self._rows), dtype=np.intp)
        for place in {job.place for job in self._pending}:
            met = np.unique(labels[self._eligible(place)])
            if len(met) > 1:
                labels[np.isin(labels, met)] = met[0]
        return labels

    def _state(self, groups: frozenset[int], priority: int | None) -> _State:
        if (groups, priority) not in self._states:
            if len(self._states) >= MAX_STATES:
                self._states.clear()
            self._states[groups, priority] = self._filled(groups, priority)
        return self._states[groups, priority]

    def _filled(self, groups: frozenset[int], priority: int | None) -> _State:
        """The GPUs of connected rows after their jobs ahead."""
        fits: dict[tuple[_Place, Need], bool] = {}
        state = _State(self._start.copy(), Counter(), Counter(), defaultdict(float))
        for job in self._pending:
            if priority is not None and job.priority < priority:
                break
            rows = self._eligible(job.place)
            if not len(rows) or int(self._group[rows[0]]) not in groups:
                continue
            if state.placed.total() < MAX_PLACED:
                if state.timeline.place(rows, job.need, job.run_s) < NEVER:
                    state.placed[job.place] += 1
                continue
            known = job.place, job.need
            if known not in fits:
                fits[known] = self._start.earliest(rows, job.need) < NEVER
            if fits[known]:
                state.reckoned[job.place] += 1
                state.reckoned_gpu_s[job.place] += job.need.gpus * job.run_s
        return state

    def _shared(self, place: _Place, rows: Rows) -> float:
        """The share of a place's GPUs that are among ``rows``."""
        theirs = self._eligible(place)
        both = self._counts[np.intersect1d(theirs, rows, assume_unique=True)].sum()
        return float(both / self._counts[theirs].sum()) if both else 0.0

    def _allowed(self, place: _Place, nodes: frozenset[str]) -> Rows:
        if (place, nodes) not in self._asked:
            rows = [r for r in self._eligible(place) if self._rows[r][0].name in nodes]
            self._asked[place, nodes] = np.array(rows, dtype=np.intp)
        return self._asked[place, nodes]

    def _eligible(self, place: _Place) -> Rows:
        if place not in self._by_place:
            constraint = parse(place.features) if place.features else None
            rows = [
                row
                for row, (node, gres) in enumerate(self._rows)
                if not self._open[row].isdisjoint(place.partitions)
                and place.gpu_type in (None, gres.type)
                and (constraint is None or constraint.matches(node.features))
            ]
            self._by_place[place] = np.array(rows, dtype=np.intp)
        return self._by_place[place]


def _limit_s(job: QueuedJob) -> float:
    return UNLIMITED_S if job.limit_min is None else job.limit_min * 60.0
