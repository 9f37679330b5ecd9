"""What a capacity report says, before any form of it is written.

Every duration is in seconds, every moment in Unix seconds, GPU time in hours of one GPU. None is
"not known", never nought.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from ..history.ingest import Period
from ..history.run import LimitBy


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A central 95 % interval and its median."""

    low: float
    median: float
    high: float

    def times(self, factor: float) -> Range:
        """The range in another unit; ``factor`` is not negative."""
        return Range(low=self.low * factor, median=self.median * factor, high=self.high * factor)


def total(ranges: Iterable[Range]) -> Range:
    """A sum whose parts err together, as predictions of one model do."""
    parts = [(one.low, one.median, one.high) for one in ranges] or [(0.0, 0.0, 0.0)]
    low, median, high = map(sum, zip(*parts, strict=True))
    return Range(low=low, median=median, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """Jobs that count nowhere, and why; ``example`` is the number of one of them."""

    reason: str
    jobs: int
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the jobs come from; ``sample`` marks generated ones."""

    kind: str
    name: str
    jobs: int
    sample: bool = False
    set_aside: tuple[SetAside, ...] = ()


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

    ``running`` belongs to jobs that had not ended at the end of the period, ``unknown`` to jobs
    whose state is missing or no known one.
    """

    completed: float = 0.0
    failed: float = 0.0
    timed_out: float = 0.0
    cancelled: float = 0.0
    preempted: float = 0.0
    running: float = 0.0
    unknown: float = 0.0

    @property
    def allocated(self) -> float:
        """All of them."""
        return self.completed + self.running + self.lost + self.cancelled + self.unknown

    @property
    def of_unknown_state(self) -> float | None:
        """Those of jobs of which nobody knows what became of them; None where there are none."""
        return self.unknown or None

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
class Loss:
    """Jobs of one user and account that ended alike without being done.

    ``state`` is the scheduler's, ``median_run_s`` how long they ran; ``example`` is the number of
    the one with the most GPU-hours, ``gpus`` its GPUs.
    """

    user: str
    account: str
    state: str
    jobs: int
    gpu_hours: float
    median_run_s: float
    example: str
    gpus: int
    scheduler: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitCause:
    """What jobs waited for: ``gpu_hours`` are GPUs asked for times hours waited.

    ``cause`` is ``taken`` (fewer GPUs of the type were free than the job asked for), ``free`` (as
    many were free, and it did not start), ``unknown`` (how many there are is not known), or, of
    jobs that wait now, what the scheduler says.
    """

    cause: str
    jobs: int
    gpu_hours: float
    now: bool = False


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
    """Jobs whose limit came from one place, None where that is not known.

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


class OpportunityKind(StrEnum):
    """What would be done differently."""

    MIXED_PRECISION = "mixed-precision"
    OTHER_GPU = "other-gpu"
    FEWER_GPUS = "fewer-gpus"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opportunity:
    """Like jobs that one change would have served better.

    ``saved_gpu_hours`` counts hours of the GPUs they ran on. Cost in the currency of the price
    file, energy in kWh.
    ``evidence`` says what the prediction rests on, ``change`` which flags of the script make it,
    ``command`` what checks it.
    """

    kind: OpportunityKind
    what: str
    users: tuple[str, ...]
    jobs: int
    gpu_hours: float
    saved_gpu_hours: Range
    saved_cost: Range | None
    saved_kwh: Range | None
    saved_co2e_kg: Range | None
    evidence: str
    change: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredUse:
    """What the measured jobs of one user did with their GPUs.

    ``gpu_hours`` they held, ``used_gpu_hours`` are these times the measured utilisation,
    ``idle_gpu_hours`` of GPUs that did nothing. ``predicted_gpu_hours`` were predicted before they
    ran. Memory as shares, of the GPU and of what was asked of the host: medians over jobs.
    """

    user: str
    jobs: int
    gpu_hours: float
    used_gpu_hours: float
    idle_gpu_hours: float
    predicted_gpu_hours: float | None
    gpu_memory_share: float | None
    host_memory_share: float | None
    kwh: float | None


class WasteKind(StrEnum):
    """What a job did not use."""

    IDLE = "idle"
    SOME_IDLE = "some-idle"
    NO_TENSOR_CORES = "no-tensor-cores"
    HOST_MEMORY = "host-memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWaste:
    """One job that did not use what it held; ``idle`` of its ``measured`` GPUs did nothing."""

    job_id: str
    user: str
    gpus: int
    kind: WasteKind
    gpu_hours: float
    wasted_gpu_hours: float
    idle: int
    measured: int
    utilisation: float
    host_memory_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What waits for one GPU type; all of it will have ended ``drain_s`` after the report."""

    gpu_type: str
    jobs: int
    gpu_hours: Range
    drain_s: Range | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJob:
    """When one waiting job will start and end, seen from the moment of the report.

    ``evidence`` and ``assumptions`` are those of the estimate of its run time. ``waits_for`` is
    what it waits for besides GPUs, empty where that is nothing or not known.
    """

    job_id: str
    name: str
    user: str
    gpus: int
    gpu_type: str
    starts_s: Range
    ends_s: Range
    evidence: str
    assumptions: str = ""
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

    @property
    def next_week(self) -> Range | None:
        """What is expected of the first week to come."""
        return next((week.expected for week in self.weeks if week.expected is not None), None)

    @property
    def may_exceed(self) -> bool:
        """Whether the 95 % interval of a week to come exceeds the capacity."""
        coming = [week.expected.high for week in self.weeks if week.expected is not None]
        return self.capacity is not None and max(coming, default=0.0) > self.capacity


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One replay of the period."""

    name: str
    gpus: Mapping[str, int]
    jobs: int
    never_started: int
    mean_wait_s: float
    median_wait_s: float
    p95_wait_s: float
    utilisation: float
    gpu_hours: float
    kwh: float | None
    cost: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The period as it would have been; ``baseline`` is a replay too, so that both are alike.

    ``history_mean_wait_s`` is what was really waited: how far the replay is from it tells how far
    to trust it. ``unmoved_jobs`` could not be predicted and kept their time and GPU type.
    """

    change: str
    baseline: Scenario
    changed: Scenario
    history_mean_wait_s: float
    unmoved_jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """The last jobs of the period replayed under one change, the first as it was.

    ``change_s`` is how much longer they would have waited in the mean than as it was, with the 95 %
    interval over draws of the period's days.
    """

    change: str
    jobs: int
    mean_wait_s: float
    p95_wait_s: float
    change_s: Range
    utilisation: float
    gpu_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityReport:
    """The whole report; a section that could not be made is empty or None and ``notes`` say why.

    ``person`` is the user whose part of it this is, empty for the whole.
    """

    made_s: float
    title: str
    version: str
    currency: str | None
    origin: Origin
    period: Period
    gpus: Mapping[str, int]
    hours: GpuHours
    capacity: float | None
    splits: Mapping[Dimension, tuple[Share, ...]]
    use: tuple[Use, ...]
    waits: tuple[WaitBySize, ...]
    limits: tuple[LimitUse, ...]
    predictions: tuple[PredictionQuality, ...]
    tensor_cores: tuple[TensorCoreUse, ...]
    losses: tuple[Loss, ...] = ()
    wait_causes: tuple[WaitCause, ...] = ()
    measured: tuple[MeasuredUse, ...] = ()
    waste: tuple[JobWaste, ...] = ()
    opportunities: tuple[Opportunity, ...] = ()
    backlog: tuple[Backlog, ...] = ()
    queue: tuple[WaitingJob, ...] = ()
    forecasts: tuple[DemandForecast, ...] = ()
    whatif: WhatIf | None = None
    alternatives: tuple[Alternative, ...] = ()
    notes: tuple[str, ...] = ()
    person: str = ""

    @property
    def idle(self) -> float | None:
        """GPU-hours that nobody had."""
        return None if self.capacity is None else max(0.0, self.capacity - self.hours.allocated)

    @property
    def idle_wanted(self) -> float | None:
        """GPU-hours that were free while jobs waited for GPUs of that type."""
        found = [share.idle_wanted_gpu_hours for share in self.splits.get(Dimension.GPU_TYPE, ())]
        known = [hours for hours in found if hours is not None]
        return sum(known) if known and self.capacity is not None else None

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """Both replays of the change that was asked for."""
        return () if self.whatif is None else (self.whatif.baseline, self.whatif.changed)

    @property
    def mean_error(self) -> float | None:
        """Of the predictions of all completed jobs."""
        jobs = sum(one.jobs for one in self.predictions)
        return sum(one.jobs * one.mean_error for one in self.predictions) / jobs if jobs else None

    @property
    def wall_time_accuracy(self) -> float | None:
        """Of all jobs with a limit together, as XDMoD defines it."""
        asked = sum(limit.requested_hours for limit in self.limits)
        used = sum(limit.requested_hours * (limit.accuracy or 0.0) for limit in self.limits)
        return used / asked if asked else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, fields named as here."""
        return {"v": 1, **asdict(self), "idle": self.idle}
