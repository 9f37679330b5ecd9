"""Pooling of square feature maps: largest value, average, and average of the whole map."""

from __future__ import annotations

import torch
from torch.nn import functional

from ..case import Case, Shape
from ..family import Axis, Choice, Family, Point, Runs, choice, numbers
from .convolutions import image_sizes, window_sizes

# Kernel, stride and padding of the windows in use.
_WINDOWS = ((2, 2, 0), (3, 2, 1), (3, 1, 1))
_WHOLE = len(_WINDOWS)


def _shape(point: Point) -> Shape:
    side, window = point["side"], point["window"]
    kernel, stride, pad = (side, side, 0) if window == _WHOLE else _WINDOWS[window]
    batch, channels = point["batch"], point["channels"]
    sizes = {
        **image_sizes(batch, channels, side),
        **window_sizes(kernel, stride, pad),
        "elements": batch * channels * side**2,
    }
    largest = point["largest"] and window != _WHOLE
    return Shape(sizes, f"kind={'max' if largest else 'avg'}")


def _pool(case: Case, device: torch.device) -> Runs:
    x = numbers(case, device, *(case.size(f"in_{axis}") for axis in "nchw"))
    kernel, stride, pad = ([case.size(f"{n}_h")] * 2 for n in ("kernel", "stride", "pad"))
    aten = torch.ops.aten
    if case.option("kind") == "max":
        out, index = functional.max_pool2d(x, kernel, stride, pad, return_indices=True)
        grad = torch.randn_like(out)
        return {
            "fwd": lambda: aten.max_pool2d_with_indices(x, kernel, stride, pad),
            "bwd": lambda: aten.max_pool2d_with_indices_backward(
                grad, x, kernel, stride, pad, [1, 1], False, index
            ),
        }
    grad = torch.randn_like(functional.avg_pool2d(x, kernel, stride, pad))
    return {
        "fwd": lambda: functional.avg_pool2d(x, kernel, stride, pad),
        "bwd": lambda: aten.avg_pool2d_backward(grad, x, kernel, stride, pad, False, True, None),
    }


FAMILIES = (
    Family(
        name="pool",
        op="pool",
        shape=_shape,
        runs=_pool,
        axes=(
            Axis("batch", (2, 128), (4, 256), step=4),
            Axis("channels", (4, 256), (16, 2048)),
            Choice("side", (4, 8, 14, 16, 28, 32, 64), (7, 14, 28, 56, 112)),
            choice("window", 0, 0, 1, 2, _WHOLE),
            choice("largest", 0, 1),
        ),
    ),
)
