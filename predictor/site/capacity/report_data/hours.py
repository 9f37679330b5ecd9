"""Where GPU-hours went."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Dimension(StrEnum):
    """What GPU-hours are split by."""

    PARTITION = "partition"
    GPU_TYPE = "gpu_type"
    ACCOUNT = "account"
    USER = "user"
    MODEL = "model"
    PRECISION = "precision"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHours:
    """GPU-hours inside the period by what became of them; they add up to ``allocated``.

    ``running`` belongs to jobs that had not ended at the end of the period.
    """

    completed: float = 0.0
    failed: float = 0.0
    timed_out: float = 0.0
    cancelled: float = 0.0
    preempted: float = 0.0
    running: float = 0.0

    @property
    def allocated(self) -> float:
        """All of them."""
        return self.completed + self.running + self.lost + self.cancelled

    @property
    def lost(self) -> float:
        """Hours whose work was thrown away: failed, timed out, preempted."""
        return self.failed + self.timed_out + self.preempted


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One value of a dimension, such as one account.

    ``unused_gpu_hours`` were reserved for completed jobs and not used: GPUs x (limit - wall time);
    they are no part of ``hours``. Of a GPU type whose number is known, ``idle_gpu_hours`` nobody
    had, and ``idle_wanted_gpu_hours`` of these were free while jobs waited for that type; None
    elsewhere.
    """

    key: str
    jobs: int
    hours: GpuHours
    unused_gpu_hours: float = 0.0
    idle_gpu_hours: float | None = None
    idle_wanted_gpu_hours: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One slot of time (an hour, a day) for the plot; ``capacity`` in GPU-hours."""

    start_s: float
    hours: GpuHours
    capacity: float | None
    waiting_gpus: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorCoreUse:
    """GPU-hours on GPUs of one type with tensor cores, by what the jobs on them computed in."""

    gpu_type: str
    fp32_hours: float
    low_precision_hours: float
    unknown_hours: float
