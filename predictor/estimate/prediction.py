"""What a prediction says: times, interval, parts, evidence and warnings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import JobError
from ..job.training_job import TrainingJob
from ..physics.autocast import peak_flops
from ..physics.step import StepTime
from ..units import duration
from . import answer
from .assumptions import Assumption, widened
from .fits import Fit, fits
from .residual.novelty import Tier

# Parts of the physical step that JSON has under their own names.
PARTS = (
    *("compute_s", "tensor_core_s", "host_s", "communication_s"),
    *("node_link_s", "fabric_s", "bubble_s", "optimizer_s"),
)


@dataclass(frozen=True, slots=True)
class Interval:
    """Central interval of the step time in seconds that holds a share ``level`` of outcomes."""

    level: float
    low_s: float
    high_s: float


@dataclass(frozen=True, slots=True, repr=False)
class Prediction:
    """The predicted time of a job.

    ``step_s`` is the median of one optimizer step, ``total_s`` of all steps (None where the job
    states no length), ``throughput`` in samples per second over all GPUs. ``physical`` is the
    price from operator and collective tables alone, ``correction`` the factor learned from
    measurements on top of it, ``deviation`` its standard deviation in ln units. ``tier`` says how
    new the job is to the measurements; ``factors`` gives the factor on ``step_s`` of a quantile.
    Of a job in ``phases`` all of it is their mean or sum. A prediction can be pickled.
    """

    job: TrainingJob
    step_s: float
    throughput: float
    steps: int | None
    physical: StepTime
    correction: float
    deviation: float
    tier: Tier
    evidence: tuple[str, ...]
    warnings: tuple[str, ...]
    factors: Callable[[float], float] = field(repr=False, compare=False)
    phases: tuple[Prediction, ...] = ()
    assumptions: tuple[Assumption, ...] = ()

    def __str__(self) -> str:
        return "\n".join(answer.lines(self))

    def __repr__(self) -> str:
        length = "" if self.total_s is None else f", {duration(self.total_s)} in all"
        return f"<Prediction of {self.job.model}: {duration(self.step_s)} a step{length}>"

    def _repr_html_(self) -> str:
        from .plots import page

        return page(self)

    def __float__(self) -> float:
        raise TypeError("a prediction is several numbers: name .step_s or .total_s, in seconds")

    @property
    def total_s(self) -> float | None:
        """Seconds of all steps."""
        return None if self.steps is None else self.step_s * self.steps

    @property
    def mfu(self) -> float:
        """Model FLOPs of a step over what one GPU could do in its time at the job's precision."""
        return self.physical.model_flops / (self.step_s * peak_flops(self.job))

    @property
    def hfu(self) -> float:
        """As ``mfu``, with what is computed again for activation checkpointing."""
        return self.physical.flops / (self.step_s * peak_flops(self.job))

    @property
    def gpu_hours(self) -> float | None:
        """GPU-hours of all steps."""
        return None if self.total_s is None else self.total_s * self.job.gpus / 3600

    def quantile_s(self, level: float) -> float:
        """Step time that a share ``level`` in (0, 1) of such jobs stays below, in seconds."""
        return self.step_s * self.factors(level)

    def interval(self, level: float = 0.95) -> Interval:
        """Central interval of the step time."""
        tail = (1 - _checked(level)) / 2
        low, high = self.quantile_s(tail), self.quantile_s(1 - tail)
        return Interval(level, min(low, self.step_s), max(high, self.step_s))

    def total_quantile_s(self, level: float) -> float | None:
        """Time of all steps that a share ``level`` of such jobs stays below, in seconds."""
        if self.total_s is None:
            return None
        of_length = [one for one in self.assumptions if one.length]
        return self.total_s * widened(self.factors(level), level, of_length)

    def total_interval(self, level: float = 0.95) -> tuple[float, float] | None:
        """Central interval of the time of all steps, in seconds; None without a length."""
        if self.total_s is None:
            return None
        tail = (1 - _checked(level)) / 2
        low, high = self.total_quantile_s(tail), self.total_quantile_s(1 - tail)
        return min(low or 0.0, self.total_s), max(high or 0.0, self.total_s)

    @property
    def memory(self) -> Fit:
        """Memory of one GPU by part, whether the job fits it, and what would make it fit."""
        return fits(self.job)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; seconds, samples per second, ratios, bytes."""
        intervals = {}
        for level in (0.5, 0.9, 0.95, 0.99):
            found = self.interval(level)
            intervals[str(level)] = {"step_low_s": found.low_s, "step_high_s": found.high_s}
            if self.steps is not None:
                low_s, high_s = self.total_interval(level) or (0.0, 0.0)
                intervals[str(level)] |= {"total_low_s": low_s, "total_high_s": high_s}
        physical, job = self.physical, self.job
        phases = {"phases": [one.as_dict() for one in self.phases]} if self.phases else {}
        return {
            "model": job.model,
            "precision": job.precision.value,
            "gpu": job.gpu,
            "gpus": job.gpus,
            "nodes": job.nodes,
            "batch_size": job.micro_batch_size,
            "global_batch_size": job.step_samples,
            "grad_accum": job.micro_steps,
            "step_s": self.step_s,
            "throughput": self.throughput,
            "throughput_per_gpu": self.throughput / job.gpus,
            "mfu": self.mfu,
            "hfu": self.hfu,
            "steps": self.steps,
            "total_s": self.total_s,
            "gpu_hours": self.gpu_hours,
            "intervals": intervals,
            "parts": {
                **{name: getattr(physical, name) for name in PARTS},
                "memory_bound_s": physical.memory_s,
                "exposed_communication_s": physical.exposed_s,
                "physical_step_s": physical.step_s,
                "correction": self.correction,
            },
            "tensor_core_share": physical.tensor_core_share,
            "memory": self.memory.as_dict(),
            "tier": self.tier.value,
            "evidence": list(self.evidence),
            "assumptions": [one.as_dict() for one in self.assumptions],
            "warnings": list(self.warnings),
            **phases,
        }


def _checked(level: float) -> float:
    if not 0 < level < 1:
        raise JobError("level", level, "0 < level < 1 is accepted, such as 0.95")
    return level
