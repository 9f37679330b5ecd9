"""Jobs that read faster than their input comes: the bound that a loader sets on a step."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..errors import JobError
from ..estimate.phase_sum import summed
from ..estimate.prediction import Prediction
from ..job.training_job import TrainingJob
from ..units import duration, short


def input_bound_s(job: TrainingJob, loader_rate: float) -> float:
    """Least seconds of a step when each node reads ``loader_rate`` samples per second.

    All GPUs of a replica take the same samples, so no more nodes read than there are replicas.
    Raises JobError for a rate that is not positive.
    """
    if not (math.isfinite(loader_rate) and loader_rate > 0):
        raise JobError("loader_rate", loader_rate, "expected samples per second above 0")
    return job.step_samples / (loader_rate * min(job.nodes, job.data_parallel))


def input_bound(found: Prediction, loader_rate: float) -> Prediction:
    """The prediction with no step below what the loader allows, and a warning where that binds.

    Every quantile is floored too: the bound is certain, whatever the rest of the step does.
    """
    if found.phases:
        return summed(found.job, [input_bound(one, loader_rate) for one in found.phases])
    bound_s = input_bound_s(found.job, loader_rate)
    step_s = max(found.step_s, bound_s)
    warnings = found.warnings
    if bound_s > found.step_s:
        wanted = loader_rate * bound_s / found.step_s
        text = (
            f"input-bound: each node would read {short(wanted)} samples/s, the loader gives "
            f"{short(loader_rate)}: a step takes at least {duration(bound_s)}, "
            f"not {duration(found.step_s)}"
        )
        warnings = (*warnings, text)
    return replace(
        found,
        step_s=step_s,
        throughput=found.job.step_samples / step_s,
        warnings=warnings,
        factors=_FlooredFactors(found, bound_s, step_s),
    )


@dataclass(frozen=True, slots=True)
class _FlooredFactors:
    """The factor on ``step_s`` for each quantile: that of ``found``, at least the bound."""

    found: Prediction
    bound_s: float
    step_s: float

    def __call__(self, level: float) -> float:
        return max(self.found.quantile_s(level), self.bound_s) / self.step_s
