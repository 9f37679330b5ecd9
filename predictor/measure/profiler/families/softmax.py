"""Softmax over attention scores, and the log-softmax of the cross-entropy loss."""

from __future__ import annotations

import torch

from ..case import Case, Shape
from ..family import Axis, Family, Point, Runs, choice, numbers


def _shape(point: Point) -> Shape:
    rows, cols = point["rows"], point["cols"]
    sizes = {"rows": rows, "cols": cols, "elements": rows * cols}
    return Shape(sizes, "kind=log_softmax" if point["log"] else "")


def _softmax(case: Case, device: torch.device) -> Runs:
    x, grad = (numbers(case, device, case.size("rows"), case.size("cols")) for _ in range(2))
    log = case.option("kind") == "log_softmax"
    forward = torch.log_softmax if log else torch.softmax
    aten = torch.ops.aten
    backward = aten._log_softmax_backward_data if log else aten._softmax_backward_data
    out = forward(x, 1)
    return {"fwd": lambda: forward(x, 1), "bwd": lambda: backward(grad, out, 1, x.dtype)}


FAMILIES = (
    Family(
        name="softmax",
        op="softmax",
        turns=2,
        shape=_shape,
        runs=_softmax,
        axes=(
            Axis("rows", (8, 16384), (256, 524288)),
            Axis("cols", (8, 2048), (32, 65536)),
            choice("log", 0, 1),
        ),
    ),
)
