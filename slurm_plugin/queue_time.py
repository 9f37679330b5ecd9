"""When a job that is not in the queue yet would start.

A list scheduler over GPUs: running jobs hold theirs as long as was estimated of them, else until
their limit, pending ones take, in order
of priority, those that are free first, and ours comes after those before it. Gaps in front of a
job that waits for many GPUs are not filled (no backfill).
Partition tiers, reservations, dependencies, later changes of priority and preemption are not seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .cluster import Cluster, SlurmJob
from .constraints import parse
from .gpu_timeline import NEVER, Need, Rows, Timeline
from .mark import parse_mark

# Pending jobs placed one by one; those after them are reckoned in GPU seconds.
MAX_PLACED = 2_000
# How long slurmctld's own backfill takes an unlimited job to run (backfill.c, one year).
UNLIMITED_S = 365 * 86_400.0
# How long a job holds its GPUs that is over its limit or completing: slurmctld looks every 30 s.
OVERDUE_S = 30.0


@dataclass(frozen=True, slots=True)
class _Place:
    """Which rows a job may take: by partition, GRES type and constraint."""

    partitions: tuple[str, ...]
    gpu_type: str | None
    features: str


@dataclass(frozen=True, slots=True)
class _Pending:
    place: _Place
    need: Need
    run_s: float


@dataclass(frozen=True, slots=True)
class _State:
    """The GPUs after the jobs that were placed, and seconds of work of those that were not."""

    timeline: Timeline
    more_s: float


class QueueModel:
    """The queue of one view of a cluster.

    The first answer for a set of connected partitions places their pending jobs; later ones only
    look.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._now = cluster.taken_s
        down = {part.name for part in cluster.partitions if not part.up}
        usable = [node for node in cluster.nodes if node.usable and node.gpus]
        self._rows = [(node, gres) for node in usable for gres in node.gpus]
        self._open = [frozenset(node.partitions) - down for node, _ in self._rows]
        self._counts = np.array([gres.count for _, gres in self._rows], dtype=np.int64)
        self._by_place: dict[_Place, Rows] = {}
        self._asked: dict[tuple[_Place, frozenset[str]], Rows] = {}
        self._states: dict[frozenset[int], _State] = {}
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
    ) -> float | None:
        """Seconds a job of ``gpus`` in all would wait on ``nodes`` of ``partition``.

        All pending jobs are before it. None where no usable nodes could ever hold it.
        """
        rows = self._allowed(_Place((partition,), gpu_type, ""), nodes)
        need = Need(gpus, gpus_per_node)
        if gpus < 1 or self._start.earliest(rows, need) == NEVER:
            return None
        groups = frozenset(self._group[rows].tolist())
        if groups not in self._states:
            self._states[groups] = self._filled(groups)
        state = self._states[groups]
        return state.timeline.earliest(rows, need) + state.more_s

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

    def _release_s(self, job: SlurmJob) -> float:
        """Seconds until a running job ends."""
        if job.state == "COMPLETING":
            return OVERDUE_S
        started = self._now if job.start_s is None else job.start_s
        return max(OVERDUE_S, started + _limit_s(job, self._now - started) - self._now)

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
            found.append(_Pending(place, need, _limit_s(job)))
        return found

    def _connected(self) -> Rows:
        """A label for each row, the same for rows that any pending jobs compete for."""
        labels = np.arange(len(self._rows), dtype=np.intp)
        for place in {job.place for job in self._pending}:
            met = np.unique(labels[self._eligible(place)])
            if len(met) > 1:
                labels[np.isin(labels, met)] = met[0]
        return labels

    def _filled(self, groups: frozenset[int]) -> _State:
        """The GPUs of connected rows after their pending jobs."""
        fits: dict[tuple[_Place, Need], bool] = {}
        timeline, placed, gpu_s = self._start.copy(), 0, 0.0
        for job in self._pending:
            rows = self._eligible(job.place)
            if not len(rows) or int(self._group[rows[0]]) not in groups:
                continue
            if placed < MAX_PLACED:
                placed += timeline.place(rows, job.need, job.run_s) < NEVER
                continue
            known = job.place, job.need
            if known not in fits:
                fits[known] = self._start.earliest(rows, job.need) < NEVER
            gpu_s += job.need.gpus * job.run_s if fits[known] else 0.0
        gpus = self._counts[np.isin(self._group, list(groups))].sum()
        return _State(timeline, gpu_s / float(gpus))

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


def _limit_s(job: SlurmJob, ran_s: float = 0.0) -> float:
    """By the estimate on the job: what is expected, once that is over what 19 of 20 need."""
    limit_s = UNLIMITED_S if job.limit_min is None else job.limit_min * 60.0
    mark = parse_mark(job.admin_comment)
    if mark is None or mark.expected_s is None or mark.upper_s is None:
        return limit_s
    known = (mark.expected_s, mark.upper_s)
    return min(limit_s, next((each for each in known if each > ran_s), limit_s))
