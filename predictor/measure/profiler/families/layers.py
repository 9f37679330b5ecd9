"""What runs over feature maps and rows of numbers: convolutions, norms, softmax, look-ups, pooling.

Convolutions are dense, grouped and depthwise, each gradient by itself; norms are those of training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..case import Case, Point, Runs, Shape, Ways, numbers

IMAGE_CHANNELS = 4  # up to here the input is an image, which needs no gradient
_LAYOUTS = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
EPSILON, MOMENTUM = 1e-5, 0.1


def image_sizes(batch: int, channels: int, side: int) -> dict[str, int]:
    """The sizes of a square feature map."""
    return {"in_n": batch, "in_c": channels, "in_h": side, "in_w": side}


def window_sizes(kernel: int, stride: int, pad: int) -> dict[str, int]:
    """The sizes of a square window."""
    sizes = {"kernel": kernel, "stride": stride, "pad": pad}
    return {f"{name}_{axis}": size for name, size in sizes.items() for axis in "hw"}


def conv_shape(point: Point) -> Shape | None:
    """A window centred as networks do it; None where it is larger than the image."""
    kernel, side = point["kernel"], point["side"]
    if kernel > side:
        return None
    patch = point["stride"] == kernel and kernel > 2
    sizes = {
        **image_sizes(point["batch"], point["in"], side),
        "out_c": point["out"],
        **window_sizes(kernel, point["stride"], 0 if patch else kernel // 2),
        "groups": point["groups"],
    }
    return Shape(sizes, f"layout={point['layout']}")


def _conv(case: Case, device: torch.device) -> Runs:
    stride, pad = ([case.size(f"{name}_{axis}") for axis in "hw"] for name in ("stride", "pad"))
    groups, layout = case.size("groups"), _LAYOUTS[case.option("layout")]
    x = _image(case, device)
    kernel = [case.size(f"kernel_{axis}") for axis in "hw"]
    weight = numbers(case, device, case.size("out_c"), case.size("in_c") // groups, *kernel)
    x, weight = x.contiguous(memory_format=layout), weight.contiguous(memory_format=layout)
    grad = torch.randn_like(functional.conv2d(x, weight, None, stride, pad, 1, groups))

    def gradient(*wanted: bool) -> object:
        return torch.ops.aten.convolution_backward(
            grad, x, weight, None, stride, pad, [1, 1], False, [0, 0], groups, wanted
        )

    runs = {
        "fwd": lambda: functional.conv2d(x, weight, None, stride, pad, 1, groups),
        "bwd_weight": lambda: gradient(False, True, False),
    }
    if case.size("in_c") > IMAGE_CHANNELS:
        runs["bwd_data"] = lambda: gradient(True, False, False)
    return runs


def batch_shape(point: Point) -> Shape:
    """A square feature map."""
    sizes = image_sizes(point["batch"], point["channels"], point["side"])
    elements = point["batch"] * point["channels"] * point["side"] ** 2
    return Shape({**sizes, "elements": elements}, "train;layout=nchw")


def rows_shape(dims: Sequence[int], params: str = "") -> Shape:
    """Rows of numbers: how many, and how long."""
    rows, cols = dims
    return Shape({"rows": rows, "cols": cols, "elements": rows * cols}, params)


def _image(case: Case, device: torch.device) -> Tensor:
    return numbers(case, device, *(case.size(f"in_{axis}") for axis in "nchw"))


def _batch_norm(case: Case, device: torch.device) -> Runs:
    """The statistics and weights are FP32, as autocast has them."""
    x, channels = _image(case, device), case.size("in_c")
    weight, var = (torch.ones(channels, device=device) for _ in range(2))
    bias, mean = (torch.zeros(channels, device=device) for _ in range(2))
    grad, aten = torch.randn_like(x), torch.ops.aten

    def forward() -> Any:
        return aten._batch_norm_impl_index(
            x, weight, bias, mean, var, True, MOMENTUM, EPSILON, True
        )

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

    def forward() -> Any:
        return aten.native_group_norm(x, weight, bias, batch, channels, positions, groups, EPSILON)

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


def _softmax(case: Case, device: torch.device) -> Runs:
    x, grad = (numbers(case, device, case.size("rows"), case.size("cols")) for _ in range(2))
    log = case.option("kind") == "log_softmax"
    forward = torch.log_softmax if log else torch.softmax
    aten = torch.ops.aten
    backward = aten._log_softmax_backward_data if log else aten._softmax_backward_data
    out = forward(x, 1)
    return {"fwd": lambda: forward(x, 1), "bwd": lambda: backward(grad, out, 1, x.dtype)}


def _embedding(case: Case, device: torch.device) -> Runs:
    rows, cols, vocab = case.size("rows"), case.size("cols"), int(case.option("vocab"))
    table, grad = numbers(case, device, vocab, cols), numbers(case, device, rows, cols)
    index = torch.randint(vocab, (rows,), device=device)
    backward = torch.ops.aten.embedding_dense_backward
    return {
        "fwd": lambda: functional.embedding(index, table),
        "bwd": lambda: backward(grad, index, vocab, -1, False),
    }


# Kernel, stride and padding of the windows in use.
_WINDOWS = ((2, 2, 0), (3, 2, 1), (3, 1, 1))
_WHOLE = len(_WINDOWS)


def _pool_shape(point: Point) -> Shape:
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
    x = _image(case, device)
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


def _grouped_shape(point: Point) -> Shape | None:
    width = point["groups"] * point["width"]
    return conv_shape({**point, "in": width, "out": width})


def _group_norm_shape(point: Point) -> Shape:
    sizes = batch_shape({**point, "channels": point["groups"] * point["width"]}).sizes
    return Shape(sizes, f"kind=groupnorm;groups={point['groups']}")


def _rows_of(point: Point) -> Shape:
    params = "kind=log_softmax" if point.get("log") else ""
    return rows_shape((point["rows"], point["cols"]), params)


def _embedding_shape(point: Point) -> Shape:
    return rows_shape((point["rows"], point["cols"]), f"vocab={point['vocab']}")


FAMILIES: Mapping[str, Ways] = {
    "conv": (conv_shape, _conv),
    "depthwise conv": (lambda p: conv_shape({**p, "out": p["in"], "groups": p["in"]}), _conv),
    "grouped conv": (_grouped_shape, _conv),
    "batch norm": (batch_shape, _batch_norm),
    "group norm": (_group_norm_shape, _group_norm),
    "layer norm": (_rows_of, _layer_norm),
    "softmax": (_rows_of, _softmax),
    "embedding": (_embedding_shape, _embedding),
    "pool": (_pool_shape, _pool),
}
