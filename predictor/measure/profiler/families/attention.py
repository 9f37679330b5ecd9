"""Fused scaled dot-product attention, forward and the whole backward."""

from __future__ import annotations

import torch
from torch.nn import functional

from ..case import Case, Shape
from ..family import Axis, Choice, Family, Point, Runs, UnsupportedError, choice, numbers, trained

# What autograd calls the kernels that never write the scores.
FUSED = ("Flash", "Efficient", "Cudnn")


def _shape(point: Point) -> Shape:
    sizes = {name: point[name] for name in ("batch", "heads", "head_dim", "seq_len")}
    return Shape(sizes, f"causal={point['causal']}")


def _attention(case: Case, device: torch.device) -> Runs:
    sizes = [case.size(name) for name in ("batch", "heads", "seq_len", "head_dim")]
    query, key, value = (trained(numbers(case, device, *sizes)) for _ in range(3))
    causal = case.option("causal") == "1"

    def forward() -> torch.Tensor:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=causal)

    out = forward()
    node = out.grad_fn.name() if out.grad_fn else ""
    if not any(word in node for word in FUSED):
        raise UnsupportedError(f"no fused attention kernel, but {node}")
    grad = torch.randn_like(out)
    return {
        "fwd": forward,
        "bwd": lambda: torch.autograd.grad(out, (query, key, value), grad, retain_graph=True),
    }


FAMILIES = (
    Family(
        name="attention",
        op="attention",
        turns=2,
        shape=_shape,
        runs=_attention,
        axes=(
            Axis("batch", (1, 32), (1, 64), step=4),
            Choice("heads", (1, 2, 4, 8), (8, 12, 16, 32)),
            Choice("head_dim", (16, 32, 64), (64, 64, 80, 128)),
            Axis("seq_len", (16, 512), (64, 8192), step=16),
            choice("causal", 0, 1),
        ),
    ),
)
