"""What the host needs to launch the operators of a step, and how that joins device time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from profiles.gpus import CPU
from profiles.storage import shipped_yaml

from ..graphs.operator import Direction, Kind
from ..job.training_job import TrainingJob
from .operator_time.work import DIRECTION_CODE, KIND_CODE, Floats, Work

_CAST = KIND_CODE[Kind.CAST]
_FORWARD, _UPDATE = DIRECTION_CODE[Direction.FORWARD], DIRECTION_CODE[Direction.UPDATE]
# Exponent that joins GPU and host time: the larger one decides, a tie costs 26 % more.
OVERLAP_NORM = 3.0
EAGER = "pytorch"  # what a framework without rates of its own is taken for


@dataclass(frozen=True, slots=True)
class HostRates:
    """Seconds of host work for one operator of each pass, one cast, one optimizer launch."""

    forward_s: float
    backward_s: float
    cast_s: float
    update_s: float

    def seconds(self, work: Work) -> Floats:
        """Seconds of one instance of each operator, (n,); only some casts are launches."""
        update, cast = work.direction == _UPDATE, work.kind == _CAST
        each = np.where(work.direction == _FORWARD, self.forward_s, self.backward_s)
        launched = np.where(update | (work.function > 0), self.cast_s, 0.0)
        return np.where(cast, launched, each) * work.kernels


ON_DEVICE = HostRates(0.0, 0.0, 0.0, 0.0)


def host_rates(job: TrainingJob) -> HostRates:
    """The rates of a job's framework, compiled or captured as its options say.

    All zero on a CPU: the rows of its tables hold the launch.
    """
    if job.hardware.kind == CPU:
        return ON_DEVICE
    software = job.software
    core = job.framework == "megatron" and software.megatron_core
    framework = "megatron-core" if core else job.framework
    # One process serves its GPUs in turn, and copies the model to them before (DataParallel).
    turns = job.gpus + 1 if software.one_process and job.gpus > 1 else 1
    return _rates(framework, software.compiled, software.captured, turns)


@cache
def _rates(framework: str, compiled: bool, captured: bool, turns: int) -> HostRates:
    table = shipped_yaml("host.yaml")
    known = table["frameworks"]
    rates = known.get(framework, known[EAGER])
    share = table["compiled_share"] if compiled else 1.0
    if captured:
        rates, share = dict.fromkeys(rates, table["cuda_graph_us"]), 1.0
    scale = share * turns * 1e-6
    cast_us = table["cuda_graph_us"] if captured else table["cast_us"]
    return HostRates(
        rates["forward_us"] * scale,
        rates["backward_us"] * scale,
        cast_us * scale,
        rates["update_us"] * 1e-6,
    )


def busy_s(device_s: float, host_s: float, *, synchronous: bool = False) -> float:
    """Seconds that device and host take together.

    One runs ahead of the other, unless the host waits for results (``synchronous``).
    """
    if synchronous:
        return device_s + host_s
    return float((device_s**OVERLAP_NORM + host_s**OVERLAP_NORM) ** (1 / OVERLAP_NORM))
