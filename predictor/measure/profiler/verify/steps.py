"""Whole steps that were measured on a device: one row each in ``steps.csv`` of its directory.

A network is trained for a few steps: their time, the memory they need, the power they draw.
"""

from __future__ import annotations

import csv
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Event
from time import monotonic, perf_counter_ns
from typing import Any

import torch
from torch import Tensor, nn

from ....job.precision import Precision
from ..device import CPU, Device, tf32, wait
from ..directory import opened_rows
from ..session import SLOWED, TORCH_ERRORS, check_lost, reason_of
from ..timing import NS, Pace, Timing, cpu_clock, timing_of
from .networks import Candidate

TABLE = "steps.csv"  # in the directory, and in its quarantine
RUN = ("id", "device", "network", "precision", "compiled", "batch_size")
FOUND = ("step_ms", "spread", "samples", "pace", "peak_bytes", "power_w")
COLUMNS = (*RUN, *FOUND, "library")
# Compiling takes minutes: of what people compile for.
COMPILED = (Precision.MIXED_BF16_FP32, Precision.MIXED_FP8_BF16)
WARM_UP = 3
STEPS = 12
SECONDS = 4.0  # a network that is slow gets fewer steps, but no fewer than FEWEST
FEWEST = 4
POWER_S = 2.0  # of steps in a row at least: NVML averages power over the last second
BATCHES = 8  # drawn before, so that tables of tokens see new rows as in training

_AUTOCAST = {
    Precision.MIXED_FP16_FP32: torch.float16,
    Precision.MIXED_BF16_FP32: torch.bfloat16,
    Precision.MIXED_FP8_BF16: torch.bfloat16,
}
_STORED = {Precision.FP16: torch.float16, Precision.BF16: torch.bfloat16}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun:
    """One network to train in one precision."""

    candidate: Candidate
    precision: Precision
    compiled: bool = False

    @property
    def name(self) -> str:
        """The precision, and whether the network is compiled."""
        return f"{self.precision.value}, compiled" if self.compiled else self.precision.value

    def id(self, device: str) -> str:
        """What the row is called."""
        how = "compiled" if self.compiled else "eager"
        batch = self.candidate.batch_size
        return f"{device}/{self.candidate.name}/{self.precision.value}/{how}/{batch}"


@dataclass(frozen=True, slots=True)
class Measured:
    """Steps as long as they took at pace 1, and the pace they ran at (``Pace`` says of what).

    On a GPU the pace is 1. ``peak_bytes`` is the most that torch's allocator gave out, ``power_w``
    what NVML says of the last second; None where there is no GPU, or NVML does not say.
    """

    timing: Timing
    pace: float
    peak_bytes: int | None = None
    power_w: float | None = None


def runs_for(device: torch.device, networks: Sequence[Candidate]) -> list[StepRun]:
    """Every network in every precision of a device, the formats people train in first."""
    found = [Precision.MIXED_BF16_FP32, Precision.FP32]
    if device.type != CPU:
        found = [Precision.MIXED_FP16_FP32, Precision.FP32, Precision.FP16]
        capability = torch.cuda.get_device_capability(device)
        if capability >= (8, 0):
            found = [Precision.MIXED_BF16_FP32, *found, Precision.TF32, Precision.BF16]
        if capability >= (8, 9):
            found.append(Precision.MIXED_FP8_BF16)
    ways = [(p, False) for p in found]
    if device.type != CPU:
        ways += [(p, True) for p in COMPILED if p in found]
    return [StepRun(candidate=c, precision=p, compiled=how) for p, how in ways for c in networks]


def train(
    root: Path,
    device: Device,
    runs: Sequence[StepRun],
    *,
    pace: Pace | None = None,
    minutes: float = float("inf"),
    stop: Event | None = None,
    progress: Callable[[str, float], None] = lambda stage, share: None,
) -> int:
    """Measure the runs that have no row yet until the minutes are over; how many are left.

    A run that cannot be measured (no memory, a kernel that is missing, clocks held down by heat)
    goes to the quarantine with the reason, and is not tried again.
    """
    name, end_s = device.sheet.device, monotonic() + 60 * minutes
    with opened_rows(root, TABLE, TABLE, COLUMNS) as rows:
        left = [run for run in runs if run.id(name) not in rows.done]
        for number, run in enumerate(left):
            if monotonic() >= end_s or (stop is not None and stop.is_set()):
                return len(left) - number
            progress(f"training {run.candidate.name}, {run.name}", number / len(left))
            found, fault = None, None
            try:
                rows.begin(run.id(name))
                found = _measured(run, device, pace)
            except TORCH_ERRORS as error:  # out of memory among them
                fault = reason_of(error)
            if found is not None and device.sensors is not None and device.sensors.slowed():
                fault = SLOWED
            rows.add(_cells(run, device, found), fault)
            check_lost(fault or "")
            gc.collect()
            torch.compiler.reset()
            if device.torch.type != CPU:
                torch.cuda.empty_cache()
    return 0


def devices(root: Path) -> list[str]:
    """Devices of which a directory has steps."""
    return sorted({row["device"] for row in _rows(root)})


def read(root: Path, device: str, networks: Sequence[Candidate]) -> Mapping[StepRun, Measured]:
    """What was measured on a device; rows of networks that are not known any more are skipped."""
    known = {c.name: c for c in networks}
    found = {}
    for row in _rows(root):
        if row["network"] not in known or row["device"] != device:
            continue
        run = StepRun(
            candidate=known[row["network"]],
            precision=Precision(row["precision"]),
            compiled=row["compiled"] == "yes",
        )
        if run.id(device) == row["id"]:
            timing = Timing(
                time_s=float(row["step_ms"]) / 1e3,
                spread=float(row["spread"]),
                samples=int(row["samples"]),
            )
            found[run] = Measured(
                timing,
                float(row["pace"]),
                int(row["peak_bytes"]) if row["peak_bytes"] else None,
                float(row["power_w"]) if row["power_w"] else None,
            )
    return found


def _rows(root: Path) -> list[dict[str, str]]:
    path = root / TABLE
    return list(csv.DictReader(path.read_text("utf-8").splitlines())) if path.exists() else []


def _cells(run: StepRun, device: Device, found: Measured | None) -> tuple[str, ...]:
    """A row in ``COLUMNS``, without figures where nothing was measured."""
    name, figures = device.sheet.device, [""] * len(FOUND)
    if found is not None:
        timing = found.timing
        figures = [
            f"{timing.time_s * 1e3:.6g}",
            f"{timing.spread:.4f}",
            str(timing.samples),
            f"{found.pace:.4f}",
            "" if found.peak_bytes is None else str(found.peak_bytes),
            "" if found.power_w is None else f"{found.power_w:.1f}",
        ]
    compiled, batch = "yes" if run.compiled else "no", str(run.candidate.batch_size)
    stated = (run.id(name), name, run.candidate.name, run.precision.value, compiled, batch)
    return (*stated, *figures, device.library)


def _measured(run: StepRun, device: Device, pace: Pace | None) -> Measured:
    """Seconds of one optimizer step (forward, loss, backward, update) of a run.

    On a CPU of one thread the seconds are those of the processor, which others on the machine
    cannot take away; everywhere else they are those on the wall. Raises what torch raises where
    the network cannot run.
    """
    where, cuda, sensors = device.torch, device.torch.type == "cuda", device.sensors
    seconds: list[float] = []
    paces: list[float] = []
    least_s = POWER_S if sensors else 0.0
    if cuda:
        torch.cuda.reset_peak_memory_stats(where)
    with tf32(run.precision is Precision.TF32):
        steps = _steps(run, where)
        for _ in range(WARM_UP):
            next(steps)
        if pace is not None:
            pace.since()
        while (
            len(seconds) < FEWEST
            or sum(seconds) < least_s
            or (len(seconds) < STEPS and sum(seconds) < SECONDS)
        ):
            took_s = next(steps)
            paces.append(1.0 if pace is None else pace.since())
            seconds.append(took_s * paces[-1])
    return Measured(
        timing_of(seconds),
        median(paces),
        torch.cuda.max_memory_allocated(where) if cuda else None,
        sensors.reading().power_w if sensors else None,
    )


def _steps(run: StepRun, device: torch.device) -> Iterator[float]:
    """Trains for ever; yields the seconds of each step."""
    clock = cpu_clock(torch.get_num_threads()) if device.type == CPU else perf_counter_ns
    torch.manual_seed(0)
    stored, low = _STORED.get(run.precision), _AUTOCAST.get(run.precision)
    with device:  # drawing the weights of a large network takes a CPU seconds
        module = run.candidate.build()
    module = module.to(device, stored).train()
    if run.precision is Precision.MIXED_FP8_BF16:
        in_fp8(module)
    if run.compiled:
        module.compile()
    batches = [
        [
            t.to(stored) if stored and t.is_floating_point() else t
            for t in run.candidate.batch(device)
        ]
        for _ in range(BATCHES)
    ]
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4)
    if run.candidate.optimizer == "sgd":
        optimizer = torch.optim.SGD(module.parameters(), lr=1e-3, momentum=0.9)
    scaled = run.precision is Precision.MIXED_FP16_FP32
    scaler = torch.amp.GradScaler(device.type, enabled=scaled)
    while True:
        batches = [*batches[1:], batches[0]]
        wait(device)
        start = clock()
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=low) if low else nullcontext():
            loss = module(*batches[0])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        wait(device)
        yield (clock() - start) * NS


# Linear layers whose three products run in FP8, with torch alone. Each tensor is scaled by its
# largest value as it comes (torchao's tensor-wise recipe): values and weights in E4M3, gradients
# in E5M2, results in BF16.
MULTIPLE = 16  # of both sizes of a product that cuBLAS computes in FP8
SMALLEST = 1e-12  # of what is divided by
VALUES, GRADIENTS = torch.float8_e4m3fn, torch.float8_e5m2


def in_fp8(module: nn.Module) -> None:
    """Let the linear layers of a network run in FP8; ValueError where none has the sizes for it."""
    chosen = [
        layer
        for layer in module.modules()
        if type(layer) is nn.Linear and not any(size % MULTIPLE for size in layer.weight.shape)
    ]
    if not chosen:
        raise ValueError(f"no linear layer has sizes in multiples of {MULTIPLE}, as FP8 needs")
    for layer in chosen:
        layer.__class__ = Fp8Linear


class Fp8Linear(nn.Linear):
    """A linear layer that gives BF16."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs)."""
        rows, weight = x.flatten(0, -2).to(torch.bfloat16), self.weight.to(torch.bfloat16)
        out: Tensor = _Product.apply(rows, weight)  # type: ignore[no-untyped-call]
        out = out.view(*x.shape[:-1], -1)
        return out if self.bias is None else out + self.bias.to(out)


class _Product(torch.autograd.Function):
    """[m, k] and [n, k] to [m, n], and both gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        """What a linear layer without bias gives."""
        ctx.save_for_backward(x, weight)
        return _product(x, weight, VALUES)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        """Of x and of the weight."""
        (x, weight), (grad,) = ctx.saved_tensors, grads
        return _product(grad, weight.t(), GRADIENTS), _product(grad.t(), x.t(), GRADIENTS)


def _product(left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    """The product with ``right.T`` of tensors row by row in memory; ``right`` becomes E4M3."""
    (a, a_scale), (b, b_scale) = _scaled(left, dtype), _scaled(right, VALUES)
    fast = dtype is VALUES  # gradients are summed with care
    return torch._scaled_mm(a, b.t(), a_scale, b_scale, None, None, torch.bfloat16, fast)


def _scaled(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A tensor in FP8, and the scale that gives its values back."""
    scale = torch.finfo(dtype).max / x.abs().amax().float().clamp(min=SMALLEST)
    return (x * scale).to(dtype).contiguous(), scale.reciprocal()
