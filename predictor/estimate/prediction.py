"""What a prediction says: times, interval, parts, evidence and warnings; the sum of phases."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from ..errors import JobError
from ..graphs.catalog import entry_of
from ..job.training_job import TrainingJob
from ..physics.autocast import peak_flops
from ..physics.step import StepTime
from ..units import count, duration, percent, short, span
from .assumptions import Assumption, as_priced, widened, widest
from .fits import Fit, fits
from .residual.novelty import TIERS, Tier

NO_LENGTH = "total: state steps= or epochs= for the time of the whole job"
NO_DATA = "total: state dataset= or dataset_size= for the time of {epochs:g} epochs"

# Parts of the physical step that JSON has under their own names.
PARTS = (
    *("compute_s", "tensor_core_s", "host_s", "communication_s"),
    *("node_link_s", "fabric_s", "bubble_s", "waiting_s", "optimizer_s"),
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
    price from operator and collective tables alone, ``correction`` the factor on top of it: learned
    from measurements, and ``unstated`` of it for the cards and workers that it may have.
    ``deviation`` is the standard deviation of what was learned, in ln units. ``tier`` says how
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
    unstated: float = 1.0

    def __str__(self) -> str:
        """Three lines: what it is, a step, the whole; where it does not fit, that before all."""
        job, half, most = self.job, self.interval(0.5), self.interval()
        what = f"{len(self.phases)} phases" if self.phases else job.precision.value
        unfit = "" if self.memory.ok else "DOES NOT FIT: "
        bands = f"50 %: {span(half.low_s, half.high_s)}; 95 %: {span(most.low_s, most.high_s)}"
        total = NO_LENGTH if job.epochs is None else NO_DATA.format(epochs=job.epochs)
        low, high = self.total_interval(0.5), self.total_interval()
        if low is not None and high is not None:
            total = f"total: {duration(self.total_s)} (50 %: {span(*low)}; 95 %: {span(*high)})"
        return (
            f"{unfit}{job.model}, {what}, {job.gpus} x {job.gpu}, {count(job.step_samples)} a step"
            f"\nstep: {duration(self.step_s)} ({bands}); {rate(self)}\n{total}"
        )

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
        peak = peak_flops(self.job, tensor_cores=self.physical.tensor_core_s > 0)
        return self.physical.model_flops / (self.step_s * peak)

    @property
    def hfu(self) -> float:
        """As ``mfu``, with what is computed again for activation checkpointing."""
        return self.mfu * self.physical.flops / self.physical.model_flops

    @property
    def gpu_hours(self) -> float | None:
        """GPU-hours of all steps."""
        return None if self.total_s is None else self.total_s * self.job.gpus / 3600

    def quantile_s(self, level: float) -> float:
        """Step time that a share ``level`` in (0, 1) of such jobs stays below, in seconds."""
        return self.step_s * self.factors(_checked(level))

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
        return self.total_s * widened(self.factors(_checked(level)), level, of_length)

    def total_interval(self, level: float = 0.95) -> tuple[float, float] | None:
        """Central interval of the time of all steps, in seconds; None without a length."""
        if self.total_s is None:
            return None
        tail = (1 - _checked(level)) / 2
        low, high = self.total_quantile_s(tail), self.total_quantile_s(1 - tail)
        return min(low or 0.0, self.total_s), max(high or 0.0, self.total_s)

    def band(self, level: float) -> tuple[float, float]:
        """Central interval of the whole job where it has a length, else of one step, in seconds."""
        step = self.interval(level)
        return self.total_interval(level) or (step.low_s, step.high_s)

    @property
    def runs(self) -> TrainingJob:
        """The job as it is priced: with what is assumed of its memory and of its examples."""
        return as_priced(self.job)

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
            "batch_size": self.runs.micro_batch_size,
            "global_batch_size": job.step_samples,
            "grad_accum": self.runs.micro_steps,
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
                "unstated": self.unstated,
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
    if not isinstance(level, int | float) or not 0 < level < 1:
        raise JobError("level", level, "expected a number between 0 and 1, such as 0.95")
    return level


def rate(found: Prediction) -> str:
    """Images or tokens a second of one GPU, and the share of its peak that the model uses."""
    job, entry = found.job, entry_of(found.job.model)
    unit, each = "samples", found.throughput / job.gpus
    if entry.image_size is not None:
        unit = "images"
    elif tokens := (not job.packed and found.runs.mean_seq_len) or job.seq_len or entry.seq_len:
        unit, each = "tokens", each * tokens
    return f"{short(each)} {unit}/s per GPU, MFU {percent(found.mfu)}"


def why_wide(found: Prediction) -> str:
    """What keeps the interval wide."""
    unstated = ", ".join(one.field for one in found.assumptions)
    return found.tier.meaning + (f"; not stated: {unstated}" if unstated else "")


def narrowing(found: Prediction) -> str:
    """The one thing that would narrow the interval most; empty where nothing is known to."""
    lacks = entry_of(found.job.model).left_out  # which nobody can state
    first = next((one for one in found.assumptions if one.field != lacks), None)
    run = TIERS[found.tier]["narrows"]
    return f"state {first.field}" if first is not None and (first.decisive or not run) else run


def summed(job: TrainingJob, found: Sequence[Prediction]) -> Prediction:
    """The phases of ``job`` one after the other, as one prediction with the mean step.

    Each quantile is the sum of that quantile of the phases. That is exact where their errors in
    ln units are one error, and the widest a sum can be: phases are of one model, program and
    site, and what the tables or the site's input miss in one they miss in the others. Errors that
    cancel out would be an assumption that no measurement supports.

    The evidence is that of the phase with the least.
    """
    steps = [one.steps for one in found if one.steps is not None]
    known = len(steps) == len(found)
    # The steps of each phase, or its share where the job has no length.
    weights = tuple(map(float, steps)) if known else tuple(one.share or 0.0 for one in job.phases)
    step_s = _mean(weights, [one.step_s for one in found])
    parts = [one.name for one in fields(StepTime) if one.name != "parameters"]
    means: dict[str, Any] = {
        name: _mean(weights, [getattr(one.physical, name) for one in found]) for name in parts
    }
    physical = replace(found[0].physical, **means)
    times = [w * one.step_s for w, one in zip(weights, found, strict=True)]
    tiers = list(Tier)
    return replace(
        max(found, key=lambda one: tiers.index(one.tier)),
        job=job,
        step_s=step_s,
        throughput=_mean(weights, [one.job.step_samples for one in found]) / step_s,
        steps=sum(steps) if known else None,
        physical=physical,
        correction=step_s / physical.step_s,
        deviation=_mean(times, [one.deviation for one in found]),
        warnings=tuple(dict.fromkeys(text for one in found for text in one.warnings)),
        phases=tuple(found),
        factors=partial(_mean_factor, tuple(found), weights, step_s),
        assumptions=widest(one for phase in found for one in phase.assumptions),
        unstated=_mean(times, [one.unstated for one in found]),
    )


def _mean_factor(
    found: Sequence[Prediction], weights: Sequence[float], step_s: float, level: float
) -> float:
    return _mean(weights, [one.quantile_s(level) for one in found]) / step_s


def _mean(weights: Sequence[float], values: Sequence[float]) -> float:
    return math.fsum(w * v for w, v in zip(weights, values, strict=True)) / math.fsum(weights)
