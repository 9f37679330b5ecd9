"""One case on one device: each direction timed, and judged before it becomes a row."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import torch

from profiles.gpus import CPU, Gpu
from profiles.rules import operator_faults

from ...errors import ProfilerError
from .case import Case, CaseLimits, Run, UnsupportedError
from .device import Device
from .families import BY_NAME
from .peaks import tf32
from .timing import DISAGREE, Timing, timed

# Copies of the tensors of a case, so that a device does not find them in its cache.
MOST_COPIES, CACHES = 32, 2.0
# What a step touches between two uses of a tensor: more than the cache of one core.
CPU_BYTES = 16 << 20
UNRELIABLE = "UNRELIABLE"
SLOWED = "heat or a power brake holds the clocks down"
FORWARD = "fwd"
LONGEST_REASON = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One direction of a case: how long it took, and why it is not to be used, if so.

    ``pace`` is how fast the device was meanwhile, where that is known; the timing is that of 1.
    """

    direction: str
    timing: Timing | None
    fault: str | None
    pace: float | None = None

    @property
    def note(self) -> str:
        """How far the samples agree, after the word that keeps it out of a fit."""
        if self.timing is None:
            return UNRELIABLE
        agreement = f"spread={self.timing.spread:.3f};samples={self.timing.samples}"
        if self.pace is not None:
            agreement += f";pace={self.pace:.3f}"
        return f"{UNRELIABLE};{agreement}" if self.fault else agreement


def measured(
    case: Case, device: Device, limits: CaseLimits, done: Collection[str]
) -> Iterator[Row]:
    """The directions of a case whose ids are not ``done``, the forward last.

    So where the row of the forward stands, the case is complete. A case that cannot run gives a
    forward that says why. Raises ProfilerError where the device is lost.
    """
    try:
        with tf32(case.dtype == "tf32"):
            yield from _directions(case, device, limits, done)
    except (RuntimeError, AttributeError, UnsupportedError) as error:
        reason = " ".join(str(error).split())[:LONGEST_REASON] or type(error).__name__
        yield Row(direction=FORWARD, timing=None, fault=f"cannot run: {reason}")
        if "CUDA error" in reason:
            raise ProfilerError(f"{reason}; run the same command again to go on") from None
        torch.cuda.empty_cache()


def _directions(
    case: Case, device: Device, limits: CaseLimits, done: Collection[str]
) -> Iterator[Row]:
    runs_of = BY_NAME[case.family].runs
    copies = [runs_of(case, device.torch) for _ in range(_copies(case, limits.gpu))]
    for direction in sorted(copies[0], key=lambda name: name == FORWARD):
        if case.id(limits.gpu.name, direction) not in done:
            runs = [copy[direction] for copy in copies]
            yield _row(case, direction, runs, device, limits)


def _row(
    case: Case, direction: str, runs: Sequence[Run], device: Device, limits: CaseLimits
) -> Row:
    timing = timed(device.timer, runs, limits.row_s)
    pace = None if device.pace is None else device.pace.since()
    timing = timing if pace is None else timing.at(pace)
    fault = operator_faults(case.row(limits.gpu.name, direction, timing.time_s))[0]
    if not timing.reliable:
        fault = DISAGREE
    elif device.sensors is not None and device.sensors.slowed():
        fault = SLOWED
    return Row(direction=direction, timing=timing, fault=fault, pace=pace)


def _copies(case: Case, gpu: Gpu) -> int:
    """Copies of the tensors, so that a call finds them no nearer than a training step does.

    On a CPU that is the cache all cores share, as its last-level cache holds more than a small
    step.
    """
    between = CPU_BYTES if gpu.kind == CPU else CACHES * gpu.l2_bytes
    moved = float(case.row(gpu.name, FORWARD, 1.0).bytes[0])
    return min(max(math.ceil(between / moved), 1), MOST_COPIES)
