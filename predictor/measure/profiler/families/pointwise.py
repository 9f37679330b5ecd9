"""Element-wise operators with their gradients, casts, sums, and what optimizers launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from ..case import TORCH_DTYPES, Axis, Case, Family, Point, Runs, Shape, choice, numbers

DROPPED = 0.1
_A = torch.ops.aten
# A cast by the format it writes: the format it reads, and how profilers spell the pair.
_CASTS = {
    "fp32": (torch.bfloat16, "c10::BFloat16->float"),
    "bf16": (torch.float32, "float->c10::BFloat16"),
    "fp16": (torch.float32, "float->c10::Half"),
}


@dataclass(frozen=True, slots=True)
class _Function:
    """``forward`` takes one or two tensors; ``backward`` the gradient and the saved tensor."""

    forward: Callable[..., Tensor]
    backward: Callable[[Tensor, Tensor], Tensor] | None = None
    operands: int = 1


_FUNCTIONS: Mapping[str, _Function] = {
    "add": _Function(torch.add, operands=2),
    "mul": _Function(torch.mul, operands=2),
    "copy": _Function(torch.clone),
    "relu": _Function(torch.relu, lambda g, y: _A.threshold_backward(g, y, 0)),
    "gelu": _Function(functional.gelu, lambda g, x: _A.gelu_backward(g, x)),
    "silu": _Function(functional.silu, lambda g, x: _A.silu_backward(g, x)),
    "tanh": _Function(torch.tanh, lambda g, y: _A.tanh_backward(g, y)),
    "sigmoid": _Function(torch.sigmoid, lambda g, y: _A.sigmoid_backward(g, y)),
}
_NAMES = (*_FUNCTIONS, "dropout")


def _shape(point: Point) -> Shape:
    name = _NAMES[point["function"]]
    return function_shape(name, point["elements"])


def function_shape(name: str, elements: int) -> Shape:
    """A function by torch's name over a number of elements."""
    function = _FUNCTIONS.get(name)
    operands = function.operands if function else 1
    return Shape({"elements": elements}, f"func={name};operands={operands}")


def _pointwise(case: Case, device: torch.device) -> Runs:
    name, n = case.option("func"), case.size("elements")
    x, y = numbers(case, device, n), numbers(case, device, n)
    if name == "dropout":
        return _dropout(x, y)
    function = _FUNCTIONS[name]
    inputs = (x, y)[: function.operands]
    runs: dict[str, Callable[[], object]] = {"fwd": lambda: function.forward(*inputs)}
    if backward := function.backward:
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


def _cast_family(dtype: str) -> Family:
    other, spelt = _CASTS[dtype]

    def shape(point: Point) -> Shape:
        return Shape(point, f"func=copy;operands=1;dtype_cast={spelt}")

    def runs(case: Case, device: torch.device) -> Runs:
        x = torch.randn(case.size("elements"), device=device).to(other)
        return {"fwd": lambda: x.to(TORCH_DTYPES[dtype])}

    return Family(
        name=f"cast to {dtype}",
        op="elementwise",
        formats=frozenset({dtype}),
        axes=(_ELEMENTS,),
        shape=shape,
        runs=runs,
    )


def _sum_shape(point: Point) -> Shape:
    cols = point["cols"]
    return Shape({"elements": point["rows"] * cols}, f"func=sum;dim=0;cols={cols}")


def _sum(case: Case, device: torch.device) -> Runs:
    """Over rows, as the gradient of a bias."""
    cols = int(case.option("cols"))
    x = numbers(case, device, case.size("elements") // cols, cols)
    return {"fwd": lambda: x.sum(0)}


_ELEMENTS = Axis("elements", (64, 8_000_000), (4096, 500_000_000))


_RATE, _DECAY = 1e-3, 0.9
Lists = Sequence[list[Tensor]]


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A kernel over ``lists`` lists of tensors, which writes ``writes`` of them.

    One more list holds the numbers of the steps, which fused kernels read. Its ``operands`` are
    stated so that they and one write are all tensors it moves.
    """

    run: Callable[[Lists], object]
    lists: int
    writes: int = 1

    @property
    def operands(self) -> int:
        """What the ``params`` cell states."""
        return self.lists + self.writes - 1


def _adamw(lists: Lists) -> object:
    weights, grads, mean, square, steps = lists
    return torch._fused_adamw_(
        weights,
        grads,
        mean,
        square,
        [],
        steps,
        lr=_RATE,
        beta1=_DECAY,
        beta2=0.999,
        weight_decay=0.01,
        eps=1e-8,
        amsgrad=False,
        maximize=False,
    )


def _sgd(lists: Lists) -> object:
    return torch._fused_sgd_(
        *lists[:3],
        weight_decay=0.0,
        momentum=_DECAY,
        lr=_RATE,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=False,
    )


_KERNELS: Mapping[str, _Kernel] = {
    "foreach_mul": _Kernel(lambda x: torch._foreach_mul_(x[0], 1.0), 1),
    "foreach_sqrt": _Kernel(lambda x: torch._foreach_sqrt(x[0]), 1),
    "foreach_add": _Kernel(lambda x: torch._foreach_add_(x[0], x[1], alpha=_RATE), 2),
    "foreach_lerp": _Kernel(lambda x: torch._foreach_lerp_(x[0], x[1], 1 - _DECAY), 2),
    "foreach_addcmul": _Kernel(lambda x: torch._foreach_addcmul_(x[0], x[1], x[2], 0.1), 3),
    "foreach_addcdiv": _Kernel(lambda x: torch._foreach_addcdiv_(x[0], x[1], x[2], -_RATE), 3),
    "fused_adamw": _Kernel(_adamw, 4, writes=3),
    "fused_sgd": _Kernel(_sgd, 3, writes=2),
}
_KERNEL_NAMES = tuple(_KERNELS)


def _update_shape(point: Point) -> Shape:
    name, tensors = _KERNEL_NAMES[point["kernel"]], point["tensors"]
    elements = tensors * point["elements"]
    operands = _KERNELS[name].operands
    return Shape({"elements": elements}, f"func={name};operands={operands};tensors={tensors}")


def _update(case: Case, device: torch.device) -> Runs:
    kernel, tensors = _KERNELS[case.option("func")], int(case.option("tensors"))
    each = case.size("elements") // tensors
    # Positive: a running mean of squares is, and roots are drawn of it.
    lists = [
        [numbers(case, device, each).abs() + 1 for _ in range(tensors)] for _ in range(kernel.lists)
    ]
    lists.append([torch.ones((), device=device) for _ in range(tensors)])
    return {"fwd": lambda: kernel.run(lists)}


FAMILIES = (
    Family(
        name="pointwise",
        op="elementwise",
        turns=5,
        shape=_shape,
        runs=_pointwise,
        axes=(_ELEMENTS, choice("function", *range(len(_NAMES)))),
    ),
    *(_cast_family(dtype) for dtype in _CASTS),
    Family(
        name="sum",
        op="reduction",
        shape=_sum_shape,
        runs=_sum,
        axes=(Axis("rows", (8, 16384), (256, 131072)), Axis("cols", (8, 1024), (64, 16384))),
    ),
    Family(
        name="optimizer",
        op="elementwise",
        turns=2,
        formats=frozenset({"fp32"}),
        shape=_update_shape,
        runs=_update,
        axes=(
            Axis("elements", (64, 500_000), (1024, 20_000_000)),
            choice("tensors", 1, 4, 16, 64),
            choice("kernel", *range(len(_KERNEL_NAMES))),
        ),
    ),
)
