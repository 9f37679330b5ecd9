"""What the host needs to launch the operators of a step."""

from __future__ import annotations

from .formats import LOW_WEIGHTS
from .job import TrainingJob

# Seconds of host work per device launch in eager mode: host-timed rows of the operator tables
# bottom out at 8-13 us (apex_plus, DeepBench; NeuSight's whole autograd call at 17-32 us). These
# and the exponent below were chosen once, from a coarse grid over all shipped runs.
LAUNCH_S = 12e-6
# Megatron-LM launches fewer, fused kernels, each from a Python function of autograd's with its own
# bookkeeping (vTrain's runs); its core of 2024 and later, with Transformer Engine or its like, twice
# as much (Megatron-LM's continuous integration, where small layers take the same time on any split).
MEGATRON_LAUNCH_S = 48e-6
MEGATRON_CORE_LAUNCH_S = 108e-6
# Exponent that joins GPU and host time: the larger one decides, a tie costs 41 % more.
OVERLAP_NORM = 2.0


def launch_s(job: TrainingJob) -> float:
    """Seconds of host work for one launch."""
    if job.framework not in LOW_WEIGHTS:
        return LAUNCH_S
    return MEGATRON_CORE_LAUNCH_S if job.option("transformer_impl") else MEGATRON_LAUNCH_S


def busy_s(device_s: float, host_s: float) -> float:
    """Seconds that device and host take together, one running ahead of the other."""
    return float((device_s**OVERLAP_NORM + host_s**OVERLAP_NORM) ** (1 / OVERLAP_NORM))
