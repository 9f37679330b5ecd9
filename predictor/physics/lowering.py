"""What a framework makes of typed operators before the device sees them: layouts, fusion."""

from __future__ import annotations

from profiles.gpus import CPU

from ..job.training_job import TrainingJob
from .autocast import TypedOperator
from .fusion import fused, fuses
from .layout import off_tensor_cores, transposes


def lowered(job: TrainingJob, typed: tuple[TypedOperator, ...]) -> tuple[TypedOperator, ...]:
    """The operators as the device runs them under the framework and options of a job."""
    if job.hardware.kind == CPU:
        return typed  # layouts are part of what tables of a CPU time
    if not job.software.channels_last:
        typed = (*typed, *transposes(typed))
    elif job.precision.activation_dtype.bytes == 2:
        typed = tuple(off_tensor_cores(typed))
    return tuple(fused(typed)) if fuses(job) else typed
