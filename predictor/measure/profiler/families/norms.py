"""Batch, layer and group norm in training."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ..case import Case, Shape
from ..family import Axis, Choice, Family, Point, Runs, choice, numbers
from .convolutions import image_sizes

EPSILON, MOMENTUM = 1e-5, 0.1


def batch_shape(point: Point) -> Shape:
    """A square feature map."""
    sizes = image_sizes(point["batch"], point["channels"], point["side"])
    elements = point["batch"] * point["channels"] * point["side"] ** 2
    return Shape({**sizes, "elements": elements}, "train;layout=nchw")


def _group_shape(point: Point) -> Shape:
    channels = point["groups"] * point["width"]
    shape = batch_shape({**point, "channels": channels})
    return Shape(shape.sizes, f"kind=groupnorm;groups={point['groups']}")


def _layer_shape(point: Point) -> Shape:
    return Shape({**point, "elements": point["rows"] * point["cols"]})


def _image(case: Case, device: torch.device) -> Tensor:
    return numbers(case, device, *(case.size(f"in_{axis}") for axis in "nchw"))


def _batch_norm(case: Case, device: torch.device) -> Runs:
    """The statistics and weights are FP32, as autocast has them."""
    x, channels = _image(case, device), case.size("in_c")
    weight, bias, mean, var = (
        fill(channels, device=device) for fill in (torch.ones, torch.zeros) * 2
    )
    grad, aten = torch.randn_like(x), torch.ops.aten
    mean, var = torch.zeros_like(mean), torch.ones_like(var)

    def forward() -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
        found: tuple[Tensor, Tensor, Tensor, Tensor, int] = aten._batch_norm_impl_index(
            x, weight, bias, mean, var, True, MOMENTUM, EPSILON, True
        )
        return found

    _, saved_mean, saved_var, reserve, kernel = forward()
    return {
        "fwd": forward,
        "bwd": lambda: aten._batch_norm_impl_index_backward(
            kernel,
            x,
            grad,
            weight,
            mean,
            var,
            saved_mean,
            saved_var,
            True,
            EPSILON,
            [True, True, True],
            reserve,
        ),
    }


def _group_norm(case: Case, device: torch.device) -> Runs:
    x, groups = _image(case, device), int(case.option("groups"))
    batch, channels = case.size("in_n"), case.size("in_c")
    positions = case.size("in_h") * case.size("in_w")
    weight, bias = (numbers(case, device, channels) for _ in range(2))
    aten, grad = torch.ops.aten, torch.randn_like(x)

    def forward() -> tuple[Tensor, Tensor, Tensor]:
        found: tuple[Tensor, Tensor, Tensor] = aten.native_group_norm(
            x, weight, bias, batch, channels, positions, groups, EPSILON
        )
        return found

    _, mean, rstd = forward()
    return {
        "fwd": forward,
        "bwd": lambda: aten.native_group_norm_backward(
            grad, x, mean, rstd, weight, batch, channels, positions, groups, [True, True, True]
        ),
    }


def _layer_norm(case: Case, device: torch.device) -> Runs:
    rows, cols = case.size("rows"), case.size("cols")
    x, grad = numbers(case, device, rows, cols), numbers(case, device, rows, cols)
    weight, bias = (numbers(case, device, cols) for _ in range(2))
    aten = torch.ops.aten
    _, mean, rstd = aten.native_layer_norm(x, [cols], weight, bias, EPSILON)
    return {
        "fwd": lambda: functional.layer_norm(x, [cols], weight, bias, EPSILON),
        "bwd": lambda: aten.native_layer_norm_backward(
            grad, x, [cols], mean, rstd, weight, bias, [True, True, True]
        ),
    }


_BATCH = Axis("batch", (2, 128), (4, 256), step=4)
_SIDE = Choice("side", (4, 8, 14, 16, 28, 32, 64), (7, 14, 28, 56, 112))

FAMILIES = (
    Family(
        name="batch norm",
        op="batchnorm",
        shape=batch_shape,
        runs=_batch_norm,
        axes=(_BATCH, _SIDE, Axis("channels", (4, 512), (16, 2048))),
    ),
    Family(
        name="group norm",
        op="batchnorm",
        shape=_group_shape,
        runs=_group_norm,
        axes=(_BATCH, _SIDE, choice("groups", 1, 8, 32), choice("width", 4, 8, 16)),
    ),
    Family(
        name="layer norm",
        op="layernorm",
        shape=_layer_shape,
        runs=_layer_norm,
        axes=(Axis("rows", (8, 16384), (256, 131072)), Axis("cols", (16, 1024), (128, 16384))),
    ),
)
