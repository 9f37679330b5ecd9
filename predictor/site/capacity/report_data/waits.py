"""How jobs waited, used their limits, and were predicted."""

from __future__ import annotations

from dataclasses import dataclass

from ...history.run import LimitBy


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitBySize:
    """From submission to start, of jobs of one size (``1``, ``2-4``, ``5-8`` ... GPUs)."""

    size: str
    jobs: int
    median_s: float
    p95_s: float
    longest_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitUse:
    """Jobs whose limit came from one place.

    ``accuracy`` is XDMoD's wall_time_accuracy: sum of wall time over sum of requested wall time,
    ``requested_hours``; None where none asked for any. ``unused_gpu_hours`` were reserved for
    completed jobs and not used: GPUs x (limit - wall time).
    """

    by: LimitBy | None
    jobs: int
    requested_hours: float
    accuracy: float | None
    killed: int
    killed_gpu_hours: float
    unused_gpu_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionQuality:
    """How right predictions of completed jobs were: errors as shares, coverage of ``level``."""

    key: str
    jobs: int
    mean_error: float
    median_error: float
    coverage: float | None
    level: float
