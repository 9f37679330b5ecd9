"""A job of the queue as a source tells it, before it is made the record all sources give."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..cluster import QueuedJob
from ..hostlist import expand
from . import output_path
from .gres import Gpus, first
from .words import queue_state

_HELD = frozenset({"JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue"})
_TASKS = re.compile(r"(?P<first>\d+)(?:-(?P<last>\d+))?(?::(?P<step>\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class RawJob:
    """One job; an array's tasks that still pend together have ``task`` None and ``tasks`` stated.

    ``tres`` are the allocated GPUs or else those requested, ``asked`` those of the options.
    ``array_id`` and ``het_id`` are None outside arrays and het jobs; ``nodes`` and ``tasks`` are
    texts of Slurm, the latter like ``0-9%2``.
    """

    job_id: int
    array_id: int | None
    task: int | None
    tasks: str
    het_id: int | None
    het_offset: int
    user: str
    name: str
    states: tuple[str, ...]
    reason: str
    partitions: tuple[str, ...]
    account: str
    qos: str
    tres: Gpus
    asked: Gpus
    node_count: int
    nodes: str
    features: str
    priority: int
    submit_s: float
    start_s: float | None
    limit_min: int | None
    comment: str
    admin_comment: str
    work_dir: str
    stdout: str
    batch: bool

    def records(self) -> Iterator[QueuedJob]:
        """The record, one of each task of a pending array; nothing of a job that has ended."""
        state = queue_state(self.states)
        if state is None:
            return
        if self.array_id is None or self.task is not None or not self.tasks:
            yield self._record(state)
        else:
            for task in array_tasks(self.tasks):
                yield replace(self, task=task)._record(state)

    def _record(self, state: str) -> QueuedJob:
        gpus = first((self.tres, self.asked))
        names = expand(self.nodes)
        return QueuedJob(
            job_id=self.job_id,
            user=self.user,
            name=self.name,
            state=state,
            partitions=self.partitions,
            account=self.account,
            qos=self.qos,
            gpus=gpus.count,
            gpu_type=gpus.type,
            nodes=len(names) or self.node_count,
            node_names=names,
            features=self.features,
            priority=self.priority,
            submit_s=self.submit_s,
            start_s=self.start_s,
            limit_min=self.limit_min,
            held=state == "PENDING" and (not self.priority or self.reason in _HELD),
            comment=self.comment,
            admin_comment=self.admin_comment,
            work_dir=self.work_dir,
            stdout=self._stdout(names[0] if names else ""),
            label=self._label(),
        )

    def _label(self) -> str:
        if self.array_id is not None and self.task is not None:
            return f"{self.array_id}_{self.task}"
        return str(self.job_id) if self.het_id is None else f"{self.het_id}+{self.het_offset}"

    def _stdout(self, node: str) -> str:
        in_array = self.array_id is not None
        pattern = self.stdout or (output_path.default(in_array) if self.batch else "")
        values = {
            "A": str(self.array_id if in_array else self.job_id),
            "j": str(self.job_id),
            "a": "" if self.task is None else str(self.task),
            "N": node.partition(".")[0],
            "u": self.user,
            "x": self.name,
        }
        return output_path.expand(pattern, self.work_dir, values)


def array_tasks(text: str) -> Iterator[int]:
    """The numbers of an array's tasks: ``0-9%2``, ``1,3``, ``0-8:2``; none of other text."""
    for part in text.partition("%")[0].split(","):
        if match := _TASKS.fullmatch(part):
            start = int(match["first"])
            yield from range(start, int(match["last"] or start) + 1, int(match["step"] or 1))


def in_order(jobs: Iterator[RawJob]) -> tuple[QueuedJob, ...]:
    """The records of all jobs by id, tasks of an array by number."""
    records = (record for job in jobs for record in job.records())
    return tuple(sorted(records, key=lambda job: (job.job_id, len(job.label), job.label)))
