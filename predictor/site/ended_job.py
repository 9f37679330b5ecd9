"""The record of a job that ended, whichever scheduler ran it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class JobState(StrEnum):
    """How a job ended; REQUEUED is a run that was ended to start again.

    UNKNOWN is no state that is known; the history keeps none of these.
    """

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    PREEMPTED = "preempted"
    NODE_FAIL = "node_fail"
    OUT_OF_MEMORY = "out_of_memory"
    DEADLINE = "deadline"
    REQUEUED = "requeued"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """One job after its end.

    Times are Unix seconds, ``start_s`` None where it never started; ``limit_s`` None where it is
    unlimited or not known. ``gpu_type`` is the scheduler's name of the allocated type, None where
    it tells none. ``stated`` is what the user said of the job (comment or annotations),
    ``decision`` what we wrote on it at submit (Slurm's AdminComment). ``energy_j`` is None where
    not measured. ``cpus`` and ``memory_bytes`` are what the whole job asked for, ``script`` is the
    signature of its script, ``directory`` where it was submitted; empty where not known.
    """

    scheduler: str
    cluster: str
    job_id: str
    name: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    state: JobState
    submit_s: float
    start_s: float | None
    end_s: float
    limit_s: float | None = None
    gpus: int
    gpu_type: str | None = None
    nodes: int = 0
    node_names: tuple[str, ...] = ()
    stated: str = ""
    decision: str = ""
    submit_line: str = ""
    constraint: str = ""
    energy_j: float | None = None
    cpus: int | None = None
    memory_bytes: int | None = None
    script: str = ""
    directory: str = ""

    @property
    def array_id(self) -> str:
        """The job array it is a task of, by Slurm's spelling ``ARRAY_TASK``; empty for none."""
        array, _, task = self.job_id.partition("_")
        return array if task else ""
