"""Matrix products: linear layers with both gradients, and batches of products."""

from __future__ import annotations

import torch
from torch.nn import functional

from ..case import Case, Shape
from ..family import Axis, Family, Point, Runs, numbers

FP8_MULTIPLE = 16  # of the sizes of a product in FP8


def _gemm_shape(point: Point) -> Shape:
    return Shape({**point, "batch": 1}, "b_t=T")


def _gemm(case: Case, device: torch.device) -> Runs:
    """As a linear layer runs them: input [m, k], weight [n, k], gradient [m, n]."""
    m, n, k = (case.size(name) for name in "mnk")
    x, weight = numbers(case, device, m, k), numbers(case, device, n, k)
    grad = numbers(case, device, m, n)
    return {
        "fwd": lambda: functional.linear(x, weight),
        "bwd_data": lambda: grad @ weight,
        "bwd_weight": lambda: grad.t() @ x,
    }


def _batched_shape(point: Point) -> Shape:
    return Shape(point, "b_t=T")


def _batched(case: Case, device: torch.device) -> Runs:
    m, n, k, batch = (case.size(name) for name in ("m", "n", "k", "batch"))
    x, y = numbers(case, device, batch, m, k), numbers(case, device, batch, n, k)
    grad = numbers(case, device, batch, m, n)
    other = y.transpose(1, 2)
    return {"fwd": lambda: torch.bmm(x, other), "bwd_data": lambda: torch.bmm(grad, y)}


def _fp8_shape(point: Point) -> Shape:
    sizes = {name: -(-size // FP8_MULTIPLE) * FP8_MULTIPLE for name, size in point.items()}
    return Shape({**sizes, "batch": 1}, "b_t=T;scaled")


def _fp8(case: Case, device: torch.device) -> Runs:
    m, n, k = (case.size(name) for name in "mnk")
    x, weight = (
        torch.randn(sizes, device=device).to(torch.float8_e4m3fn) for sizes in ((m, k), (n, k))
    )
    one, other = torch.ones((), device=device), weight.t()
    return {
        "fwd": lambda: torch._scaled_mm(
            x, other, scale_a=one, scale_b=one, out_dtype=torch.bfloat16
        )
    }


_AXES = (
    Axis("m", (8, 4096), (16, 65536)),
    Axis("n", (8, 2048), (16, 16384)),
    Axis("k", (8, 2048), (16, 16384)),
)
_GPU_AXES = tuple(Axis(axis.name, axis.gpu, axis.gpu) for axis in _AXES)

FAMILIES = (
    Family(name="gemm", op="gemm", turns=3, tf32=True, axes=_AXES, shape=_gemm_shape, runs=_gemm),
    Family(
        name="batched gemm",
        op="batched_gemm",
        tf32=True,
        shape=_batched_shape,
        runs=_batched,
        axes=(
            Axis("m", (8, 256), (16, 2048)),
            Axis("n", (8, 256), (16, 2048)),
            Axis("k", (8, 128), (16, 512)),
            Axis("batch", (2, 256), (4, 1024)),
        ),
    ),
    Family(
        name="fp8 gemm",
        op="gemm",
        turns=2,
        formats=frozenset({"fp8"}),
        axes=_GPU_AXES,
        shape=_fp8_shape,
        runs=_fp8,
    ),
)
