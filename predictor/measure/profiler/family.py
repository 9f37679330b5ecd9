"""A family of operators: the sizes worth measuring, and how one of them is run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from .case import Case, Shape

Run = Callable[[], object]
Runs = Mapping[str, Run]
Point = Mapping[str, int]

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
    cpu: tuple[int, ...]
    gpu: tuple[int, ...]

    def at(self, share: float, cpu: bool) -> int:
        """The value at a share of the way, 0 to 1."""
        values = self.cpu if cpu else self.gpu
        return values[min(int(share * len(values)), len(values) - 1)]


def choice(name: str, *values: int) -> Choice:
    """The same values on every device."""
    return Choice(name, values, values)


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


def numbers(case: Case, device: torch.device, *sizes: int) -> torch.Tensor:
    """Random values in the format of a case."""
    return torch.randn(sizes, device=device).to(TORCH_DTYPES[case.dtype])


def trained(tensor: torch.Tensor) -> torch.Tensor:
    """The same values as a leaf that gets a gradient."""
    return tensor.detach().requires_grad_()
