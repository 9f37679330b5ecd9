"""Recurrent layers: the products of all steps, behind an input too narrow to count."""

from __future__ import annotations

import torch

from ..case import Case, Shape
from ..family import TORCH_DTYPES, Axis, Family, Point, Runs, choice, numbers, trained

# Width of the input: tensor cores want a multiple of 8, and the input GEMM is not to count.
INPUT = 8
_CELLS = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}
# oneDNN computes the gradient of the weights with that of the data, whether wanted or not.
_BOTH_GRADIENTS = "Mkldnn"


def cell_shape(cell: str, point: Point) -> Shape:
    """One layer of LSTM or GRU."""
    params = f"cell={cell};hidden={point['hidden']};layers=1;input={INPUT}"
    return Shape({"batch": point["batch"], "seq_len": point["seq_len"]}, params)


def _shape(point: Point) -> Shape:
    return cell_shape(tuple(_CELLS)[point["cell"]], point)


def _recurrent(case: Case, device: torch.device) -> Runs:
    """The weights want no gradient: that is a product of its own."""
    cell = _CELLS[case.option("cell")](INPUT, int(case.option("hidden")))
    cell = cell.to(device, TORCH_DTYPES[case.dtype]).requires_grad_(False)
    x = trained(numbers(case, device, case.size("seq_len"), case.size("batch"), INPUT))
    out = cell(x)[0]
    grad = torch.randn_like(out)
    back = "bwd" if _made_by(out, _BOTH_GRADIENTS) else "bwd_data"
    return {
        "fwd": lambda: cell(x),
        back: lambda: torch.autograd.grad(out, x, grad, retain_graph=True),
    }


def _made_by(out: torch.Tensor, word: str) -> bool:
    """Whether a node of this name lies within a few steps behind a tensor."""
    nodes = [out.grad_fn]
    for _ in range(4):
        nodes += [node for last in nodes if last for node, _ in last.next_functions]
        nodes = list(dict.fromkeys(nodes))
    return any(node is not None and word in node.name() for node in nodes)


FAMILIES = (
    Family(
        name="recurrent",
        op="rnn",
        turns=2,
        tf32=True,
        shape=_shape,
        runs=_recurrent,
        axes=(
            Axis("batch", (4, 64), (16, 512)),
            Axis("seq_len", (4, 64), (16, 512)),
            Axis("hidden", (16, 256), (128, 2048)),
            choice("cell", 0, 1),
        ),
    ),
)
