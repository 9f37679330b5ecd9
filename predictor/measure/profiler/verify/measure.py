"""Trains a network for a few steps: their time, the memory they need, the power they draw."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns
from typing import Any

import torch

from ....job.precision import Precision
from ..nvml import Sensors
from ..peaks import tf32
from ..timing import NS, Pace, Timing, cpu_clock, timing_of
from .candidates import Candidate

WARM_UP = 3
STEPS = 12
SECONDS = 4.0  # a network that is slow gets fewer steps, but no fewer than FEWEST
FEWEST = 4
BATCHES = 8  # drawn before, so that tables of tokens see new rows as in training

_AUTOCAST = {Precision.MIXED_FP16_FP32: torch.float16, Precision.MIXED_BF16_FP32: torch.bfloat16}
_STORED = {Precision.FP16: torch.float16, Precision.BF16: torch.bfloat16}


def precisions(device: torch.device) -> tuple[Precision, ...]:
    """What a device is measured in."""
    if device.type == "cpu":
        return (Precision.FP32, Precision.MIXED_BF16_FP32)
    found = [Precision.FP32, Precision.FP16, Precision.MIXED_FP16_FP32]
    if torch.cuda.get_device_capability(device) >= (8, 0):
        found += [Precision.TF32, Precision.BF16, Precision.MIXED_BF16_FP32]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Measured:
    """Steps as long as they took at pace 1, and the pace they ran at (``Pace`` says of what).

    On a GPU the pace is 1. ``peak_bytes`` is the most that torch's allocator gave out, ``power_w``
    the median of what NVML saw; None where there is no GPU, or no NVML.
    """

    timing: Timing
    pace: float
    peak_bytes: int | None = None
    power_w: float | None = None


def measured(
    candidate: Candidate,
    precision: Precision,
    device: torch.device,
    pace: Pace | None,
    *,
    compiled: bool = False,
    sensors: Sensors | None = None,
) -> Measured:
    """Seconds of one optimizer step (forward, loss, backward, update) of a candidate.

    On a CPU of one thread the seconds are those of the processor, which others on the machine
    cannot take away; everywhere else they are those on the wall. Raises what torch raises where
    the network cannot run.
    """
    clock = cpu_clock(torch.get_num_threads()) if device.type == "cpu" else perf_counter_ns
    seconds: list[float] = []
    paces: list[float] = []
    watts: list[float] = []
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with tf32(precision is Precision.TF32):
        steps = _steps(candidate, precision, device, clock, compiled=compiled)
        for _ in range(WARM_UP):
            next(steps)
        if pace is not None:
            pace.since()
        while len(seconds) < FEWEST or (len(seconds) < STEPS and sum(seconds) < SECONDS):
            took_s = next(steps)
            paces.append(1.0 if pace is None else pace.since())
            seconds.append(took_s * paces[-1])
            if sensors is not None:
                watts.append(sensors.reading().power_w)
    return Measured(
        timing_of(seconds),
        median(paces),
        torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
        median(watts) if watts else None,
    )


def _steps(
    candidate: Candidate,
    precision: Precision,
    device: torch.device,
    clock: Callable[[], int],
    *,
    compiled: bool,
) -> Iterator[float]:
    """Trains for ever; yields the seconds of each step."""
    torch.manual_seed(0)
    stored = _STORED.get(precision)
    module = candidate.build().to(device, stored).train()
    if compiled:
        module.compile()
    batches = [_cast(candidate.batch(device), stored) for _ in range(BATCHES)]
    optimizer = _optimizer(candidate.optimizer, module)
    scaler = torch.amp.GradScaler(device.type, enabled=precision is Precision.MIXED_FP16_FP32)
    while True:
        batches = [*batches[1:], batches[0]]
        _wait(device)
        start = clock()
        optimizer.zero_grad()
        with _autocast(precision, device):
            loss = module(*batches[0])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        _wait(device)
        yield (clock() - start) * NS


def _cast(batch: tuple[torch.Tensor, ...], stored: torch.dtype | None) -> tuple[torch.Tensor, ...]:
    if stored is None:
        return batch
    return tuple(t.to(stored) if t.is_floating_point() else t for t in batch)


def _optimizer(name: str, module: torch.nn.Module) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(module.parameters(), lr=1e-3, momentum=0.9)
    return torch.optim.AdamW(module.parameters(), lr=1e-4)


def _autocast(precision: Precision, device: torch.device) -> Any:
    low = _AUTOCAST.get(precision)
    return nullcontext() if low is None else torch.autocast(device.type, dtype=low)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
