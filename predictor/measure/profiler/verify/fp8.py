"""Linear layers whose three products run in FP8, with torch alone.

Each tensor is scaled by its largest value as it comes (torchao's tensor-wise recipe): values and
weights in E4M3, gradients in E5M2, results in BF16.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

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
