"""The whole report, put together from its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .ahead import Backlog, DemandForecast, WaitingJob
from .hours import Dimension, GpuHours, Share, TensorCoreUse, Use
from .opportunity import Opportunity
from .period import Origin, ReportPeriod
from .waits import LimitUse, PredictionQuality, WaitBySize
from .what_if import WhatIf


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityReport:
    """The whole report; a section that could not be made is empty or None and ``notes`` say why."""

    made_s: float
    title: str
    version: str
    currency: str | None
    origin: Origin
    period: ReportPeriod
    gpus: Mapping[str, int]
    hours: GpuHours
    capacity: float | None
    splits: Mapping[Dimension, tuple[Share, ...]]
    use: tuple[Use, ...]
    waits: tuple[WaitBySize, ...]
    limits: tuple[LimitUse, ...]
    predictions: tuple[PredictionQuality, ...]
    tensor_cores: tuple[TensorCoreUse, ...]
    opportunities: tuple[Opportunity, ...] = ()
    backlog: tuple[Backlog, ...] = ()
    queue: tuple[WaitingJob, ...] = ()
    forecasts: tuple[DemandForecast, ...] = ()
    whatif: WhatIf | None = None
    notes: tuple[str, ...] = ()

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
    def wall_time_accuracy(self) -> float | None:
        """Of all jobs with a limit together, as XDMoD defines it."""
        asked = sum(limit.requested_hours for limit in self.limits)
        used = sum(limit.requested_hours * (limit.accuracy or 0.0) for limit in self.limits)
        return used / asked if asked else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, fields named as here."""
        found: dict[str, Any] = {"v": 1} | asdict(self)
        found["idle"] = self.idle
        return found
