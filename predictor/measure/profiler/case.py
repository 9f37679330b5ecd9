"""One operator to be timed, as a table states it, and the families such operators come from."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from profiles.conventions import MATMUL_OPS, SHAPE_FIELDS, parse_params
from profiles.gpus import Gpu
from profiles.rules import matmul_peak
from profiles.tables import OperatorTable, operator_table

# A run of this many rows covers every family many times over; a longer run times each row longer.
ROWS = 2500
SHORTEST_ROW_S, LONGEST_ROW_S = 0.004, 1.0
CALLS = 5  # of the most expensive case in the time of a row
# A kernel reaches about this share of the peaks.
EFFICIENCY = 0.5
# Tensors of a case: inputs, outputs, gradients, and a copy in another layout.
MEMORY_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseLimits:
    """Bounds of a case on one device: seconds of a call, bytes it moves, seconds of a row."""

    gpu: Gpu
    row_s: float

    @classmethod
    def of(cls, gpu: Gpu, minutes: float) -> CaseLimits:
        """The bounds of a run of so many minutes."""
        return cls(gpu=gpu, row_s=min(max(60 * minutes / ROWS, SHORTEST_ROW_S), LONGEST_ROW_S))

    def allow(self, case: Case) -> bool:
        """Whether the forward of a case fits in memory and time."""
        row = case.row(self.gpu.name, "fwd", 1.0)
        flops, moved = float(row.flops[0]), float(row.bytes[0])
        seconds = roofline_s(self.gpu, case.op, case.dtype, flops, moved)
        fits = moved < MEMORY_SHARE * self.gpu.memory_bytes
        return fits and seconds < EFFICIENCY * self.row_s / CALLS


def roofline_s(gpu: Gpu, op: str, dtype: str, flops: float, moved: float) -> float:
    """Least seconds of an operator by the peaks of a data sheet."""
    peak = matmul_peak(gpu, dtype) if op in MATMUL_OPS else None
    compute = flops / (peak or gpu.peak_flops["fp32"])
    return max(compute, moved / gpu.bandwidth_bytes_per_s)


UNSTATED = "nan"


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes by the field names of ``SHAPE_FIELDS``, and the ``params`` cell."""

    sizes: Mapping[str, int]
    params: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One operator of one shape in one format, of a named family of operators."""

    family: str
    op: str
    dtype: str
    shape: Shape

    @property
    def cell(self) -> str:
        """The ``shape`` cell of a table."""
        sizes = self.shape.sizes
        return " ".join(str(sizes.get(name, UNSTATED)) for name in SHAPE_FIELDS[self.op])

    def size(self, name: str) -> int:
        """One size, which the shape must have."""
        return self.shape.sizes[name]

    def option(self, name: str) -> str:
        """One parameter, empty where it is not stated."""
        return parse_params(self.shape.params).get(name, "")

    def id(self, device: str, direction: str) -> str:
        """The id of a row: the same whenever the same thing is measured on the same device."""
        words = (device, self.op, direction, self.dtype, self.cell, self.shape.params)
        return "pt" + hashlib.sha256("|".join(words).encode()).hexdigest()[:12]

    def row(self, device: str, direction: str, time_s: float) -> OperatorTable:
        """A table of this one row, with the FLOPs and bytes of ``conventions``."""
        columns = {
            **{name: [""] for name in ("source", "library")},
            "id": [self.id(device, direction)],
            "op": [self.op],
            "direction": [direction],
            "dtype": [self.dtype],
            "params": [self.shape.params],
            "shape": [self.cell],
            "time_us": [str(time_s * 1e6)],
        }
        return operator_table([device], columns)


Run = Callable[[], object]
Runs = Mapping[str, Run]
Point = Mapping[str, Any]  # the value of each axis

TORCH_DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}


class UnsupportedError(Exception):
    """This shape cannot be run as one operator here; the message says why."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A size between two bounds, even in its logarithm, in multiples of ``step`` above it."""

    name: str
    cpu: tuple[int, int]
    gpu: tuple[int, int]
    step: int = 8

    def at(self, share: float, cpu: bool) -> int:
        """The size at a share of the way, 0 to 1."""
        low, high = self.cpu if cpu else self.gpu
        size = math.exp(math.log(low) + share * math.log(high / low))
        if size >= self.step:
            return round(size / self.step) * self.step
        return max(low, round(size))


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few values, more often those that stand there twice."""

    name: str
    cpu: tuple[Any, ...]
    gpu: tuple[Any, ...] = ()  # where they are others

    def at(self, share: float, cpu: bool) -> Any:
        """The value at a share of the way, 0 to 1."""
        values = self.cpu if cpu or not self.gpu else self.gpu
        return values[min(int(share * len(values)), len(values) - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Operators that are measured and run alike.

    ``shape`` makes the shape of a point of ``axes``, None where there is none. ``runs`` makes the
    tensors of a case and gives a call for each direction; it raises UnsupportedError or what torch
    raises. ``turns`` is how many cases a round takes, ``tf32`` whether tensor cores multiply it.
    """

    name: str
    op: str
    axes: tuple[Axis | Choice, ...]
    shape: Callable[[Point], Shape | None]
    runs: Callable[[Case, torch.device], Runs]
    turns: int = 1
    tf32: bool = False
    formats: frozenset[str] | None = None


# How a point of the axes becomes a shape, and a case its calls: ``shape`` and ``runs`` of a family.
Ways = tuple[Callable[[Point], Shape | None], Callable[[Case, torch.device], Runs]]


def numbers(case: Case, device: torch.device, *sizes: int) -> torch.Tensor:
    """Random values in the format of a case."""
    return torch.randn(sizes, device=device).to(TORCH_DTYPES[case.dtype])


def trained(tensor: torch.Tensor) -> torch.Tensor:
    """The same values as a leaf that gets a gradient."""
    return tensor.detach().requires_grad_()
