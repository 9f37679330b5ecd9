"""Matrix products with both gradients, fused attention, and recurrent layers."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import functional

from ..case import TORCH_DTYPES, Case, Point, Runs, Shape, UnsupportedError, Ways, numbers, trained

FP8_MULTIPLE = 16  # of the sizes of a product in FP8


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
            x, other, one, one, out_dtype=torch.bfloat16, use_fast_accum=True
        )
    }


# What autograd calls the kernels that never write the scores.
FUSED = ("Flash", "Efficient", "Cudnn")


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


# Width of the input: tensor cores want a multiple of 8, and the input GEMM is not to count.
INPUT = 8
_CELLS = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}
# oneDNN computes the gradient of the weights with that of the data, whether wanted or not.
_BOTH_GRADIENTS = "Mkldnn"


def cell_shape(cell: str, point: Point) -> Shape:
    """One layer of LSTM or GRU."""
    params = f"cell={cell};hidden={point['hidden']};layers=1;input={INPUT}"
    return Shape({"batch": point["batch"], "seq_len": point["seq_len"]}, params)


def _recurrent(case: Case, device: torch.device) -> Runs:
    """The weights want no gradient: that is a product of its own."""
    cell = _CELLS[case.option("cell")](INPUT, int(case.option("hidden")))
    cell = cell.to(device, TORCH_DTYPES[case.dtype]).requires_grad_(False)
    x = trained(numbers(case, device, case.size("seq_len"), case.size("batch"), INPUT))
    out = cell(x)[0]
    grad = torch.randn_like(out)
    nodes = [out.grad_fn]  # and those a few steps behind it
    for _ in range(4):
        nodes += [node for last in nodes if last for node, _ in last.next_functions]
        nodes = list(dict.fromkeys(nodes))
    both = any(node is not None and _BOTH_GRADIENTS in node.name() for node in nodes)
    back = "bwd" if both else "bwd_data"
    return {
        "fwd": lambda: cell(x),
        back: lambda: torch.autograd.grad(out, x, grad, retain_graph=True),
    }


def _attention_shape(point: Point) -> Shape:
    sizes = {name: size for name, size in point.items() if name != "causal"}
    return Shape(sizes, f"causal={point['causal']}")


FAMILIES: Mapping[str, Ways] = {
    "gemm": (lambda p: Shape({**p, "batch": 1}, "b_t=T"), _gemm),
    "batched gemm": (lambda p: Shape(p, "b_t=T"), _batched),
    "fp8 gemm": (_fp8_shape, _fp8),
    "attention": (_attention_shape, _attention),
    "recurrent": (lambda p: cell_shape(p["cell"], p), _recurrent),
}
