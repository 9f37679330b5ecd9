"""Element-wise operators with their gradients, casts, sums, and what optimizers launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..case import TORCH_DTYPES, Case, Point, Run, Runs, Shape, Ways, numbers

DROPPED = 0.1
_A = torch.ops.aten
# A cast by the format it writes: the format it reads, and how profilers spell the pair.
_CASTS = {
    "fp32": (torch.bfloat16, "c10::BFloat16->float"),
    "bf16": (torch.float32, "float->c10::BFloat16"),
    "fp16": (torch.float32, "float->c10::Half"),
}


# By torch's name: what takes one or two tensors, and what takes the gradient and the saved tensor.
_FUNCTIONS: Mapping[str, tuple[Callable[..., Tensor], Callable[..., Tensor] | None]] = {
    "add": (torch.add, None),
    "mul": (torch.mul, None),
    "copy": (torch.clone, None),
    "relu": (torch.relu, lambda g, y: _A.threshold_backward(g, y, 0)),
    "gelu": (functional.gelu, _A.gelu_backward),
    "silu": (functional.silu, _A.silu_backward),
    "tanh": (torch.tanh, _A.tanh_backward),
    "sigmoid": (torch.sigmoid, _A.sigmoid_backward),
}
_OF_TWO = ("add", "mul")


def function_shape(name: str, elements: int) -> Shape:
    """A function by torch's name over a number of elements."""
    operands = 2 if name in _OF_TWO else 1
    return Shape({"elements": elements}, f"func={name};operands={operands}")


def _pointwise(case: Case, device: torch.device) -> Runs:
    name, n = case.option("func"), case.size("elements")
    x, y = numbers(case, device, n), numbers(case, device, n)
    if name == "dropout":
        return _dropout(x, y)
    forward, backward = _FUNCTIONS[name]
    inputs = (x, y) if name in _OF_TWO else (x,)
    runs: dict[str, Run] = {"fwd": lambda: forward(*inputs)}
    if backward is not None:
        runs["bwd"] = lambda: backward(x, y)
    return runs


def _dropout(x: Tensor, grad: Tensor) -> Runs:
    """One kernel with a mask of bytes on a GPU; a CPU multiplies by random numbers it keeps."""
    if x.device.type == "cpu":
        noise = torch.empty_like(x).bernoulli_(1 - DROPPED)
        return {"fwd": lambda: functional.dropout(x, DROPPED), "bwd": lambda: grad * noise}
    mask = torch.rand_like(x, dtype=torch.float32) > DROPPED
    return {
        "fwd": lambda: torch.native_dropout(x, DROPPED, True),
        "bwd": lambda: _A.native_dropout_backward(grad, mask, 1 / (1 - DROPPED)),
    }


def _cast(dtype: str) -> Ways:
    other, spelt = _CASTS[dtype]

    def runs(case: Case, device: torch.device) -> Runs:
        x = torch.randn(case.size("elements"), device=device).to(other)
        return {"fwd": lambda: x.to(TORCH_DTYPES[dtype])}

    return lambda p: Shape(p, f"func=copy;operands=1;dtype_cast={spelt}"), runs


def _sum_shape(point: Point) -> Shape:
    cols = point["cols"]
    return Shape({"elements": point["rows"] * cols}, f"func=sum;dim=0;cols={cols}")


def _sum(case: Case, device: torch.device) -> Runs:
    """Over rows, as the gradient of a bias."""
    cols = int(case.option("cols"))
    x = numbers(case, device, case.size("elements") // cols, cols)
    return {"fwd": lambda: x.sum(0)}


_RATE, _DECAY = 1e-3, 0.9
Lists = Sequence[list[Tensor]]


_ADAMW: Any = {"lr": _RATE, "beta1": _DECAY, "beta2": 0.999, "weight_decay": 0.01, "eps": 1e-8}
_SGD: Any = {"lr": _RATE, "momentum": _DECAY, "dampening": 0.0, "weight_decay": 0.0}


def _adamw(lists: Lists) -> object:
    weights, grads, mean, square, steps = lists
    flags: Any = {"amsgrad": False, "maximize": False}
    return torch._fused_adamw_(weights, grads, mean, square, [], steps, **_ADAMW, **flags)


def _sgd(lists: Lists) -> object:
    weights, grads, momentum, *_ = lists
    flags: Any = {"nesterov": False, "maximize": False, "is_first_step": False}
    return torch._fused_sgd_(weights, grads, momentum, **_SGD, **flags)


# A kernel over lists of tensors, how many lists, and how many of them it writes. One more list
# holds the numbers of the steps, which fused kernels read.
_KERNELS: Mapping[str, tuple[Callable[[Lists], object], int, int]] = {
    "foreach_mul": (lambda x: torch._foreach_mul_(x[0], 1.0), 1, 1),
    "foreach_sqrt": (lambda x: torch._foreach_sqrt(x[0]), 1, 1),
    "foreach_add": (lambda x: torch._foreach_add_(x[0], x[1], alpha=_RATE), 2, 1),
    "foreach_lerp": (lambda x: torch._foreach_lerp_(x[0], x[1], 1 - _DECAY), 2, 1),
    "foreach_addcmul": (lambda x: torch._foreach_addcmul_(x[0], x[1], x[2], 0.1), 3, 1),
    "foreach_addcdiv": (lambda x: torch._foreach_addcdiv_(x[0], x[1], x[2], -_RATE), 3, 1),
    "fused_adamw": (_adamw, 4, 3),
    "fused_sgd": (_sgd, 3, 2),
}


def _update_shape(point: Point) -> Shape:
    """The operands stated are such that they and one write are all tensors the kernel moves."""
    name, tensors = point["kernel"], point["tensors"]
    _, lists, writes = _KERNELS[name]
    params = f"func={name};operands={lists + writes - 1};tensors={tensors}"
    return Shape({"elements": tensors * point["elements"]}, params)


def _update(case: Case, device: torch.device) -> Runs:
    run, count, _ = _KERNELS[case.option("func")]
    tensors = int(case.option("tensors"))
    each = case.size("elements") // tensors
    # Positive: a running mean of squares is, and roots are drawn of it.
    lists = [[numbers(case, device, each).abs() + 1 for _ in range(tensors)] for _ in range(count)]
    lists.append([torch.ones((), device=device) for _ in range(tensors)])
    return {"fwd": lambda: run(lists)}


FAMILIES: Mapping[str, Ways] = {
    "pointwise": (lambda p: function_shape(p["function"], p["elements"]), _pointwise),
    **{f"cast to {dtype}": _cast(dtype) for dtype in _CASTS},
    "sum": (_sum_shape, _sum),
    "optimizer": (_update_shape, _update),
}
