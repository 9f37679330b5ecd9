"""What waits, and what is to come."""

from __future__ import annotations

from dataclasses import dataclass

from .period import Range


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What waits for one GPU type; ``unknown_jobs`` state too little to be predicted.

    ``unknown_gpu_hours`` is their upper bound: GPUs x limit. ``drain_s`` is when all of it will
    have ended, from the moment of the report.
    """

    gpu_type: str
    jobs: int
    gpu_hours: Range
    unknown_jobs: int
    unknown_gpu_hours: float
    drain_s: Range | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJob:
    """When one waiting job will start and end, seen from the moment of the report.

    ``waits_for`` is what it waits for besides GPUs, empty where that is nothing or not known.
    """

    job_id: str
    name: str
    user: str
    gpus: int
    gpu_type: str
    starts_s: Range
    ends_s: Range
    evidence: str
    waits_for: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekDemand:
    """GPU-hours asked for in one week: ``measured`` in the past, ``expected`` after it.

    ``likely`` is the central 80 % of what is expected, with the same median.
    """

    start_s: float
    measured: float | None = None
    expected: Range | None = None
    likely: Range | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandForecast:
    """Demand of one partition or GPU type; ``saturates_s`` is the first week beyond capacity."""

    key: str
    weeks: tuple[WeekDemand, ...]
    capacity: float | None
    saturates_s: float | None
    method: str
