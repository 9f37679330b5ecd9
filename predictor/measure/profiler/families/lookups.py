"""Look-ups in embedding tables, and the dense gradient of the table."""

from __future__ import annotations

import torch
from torch.nn import functional

from ..case import Case, Shape
from ..family import Axis, Family, Point, Runs, numbers


def _shape(point: Point) -> Shape:
    rows, cols = point["rows"], point["cols"]
    sizes = {"rows": rows, "cols": cols, "elements": rows * cols}
    return Shape(sizes, f"vocab={point['vocab']}")


def _embedding(case: Case, device: torch.device) -> Runs:
    rows, cols, vocab = case.size("rows"), case.size("cols"), int(case.option("vocab"))
    table, grad = numbers(case, device, vocab, cols), numbers(case, device, rows, cols)
    index = torch.randint(vocab, (rows,), device=device)
    backward = torch.ops.aten.embedding_dense_backward
    return {
        "fwd": lambda: functional.embedding(index, table),
        "bwd": lambda: backward(grad, index, vocab, -1, False),
    }


FAMILIES = (
    Family(
        name="embedding",
        op="embedding",
        shape=_shape,
        runs=_embedding,
        axes=(
            Axis("rows", (64, 8192), (256, 131072)),
            Axis("cols", (16, 512), (64, 8192)),
            Axis("vocab", (100, 20000), (1000, 250000)),
        ),
    ),
)
