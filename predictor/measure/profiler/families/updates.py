"""What an optimizer step launches: kernels over lists of tensors, and fused AdamW and SGD."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..case import Case, Shape
from ..family import Axis, Family, Point, Runs, choice, numbers

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
_NAMES = tuple(_KERNELS)


def _shape(point: Point) -> Shape:
    name, tensors = _NAMES[point["kernel"]], point["tensors"]
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
        name="optimizer",
        op="elementwise",
        turns=2,
        formats=frozenset({"fp32"}),
        shape=_shape,
        runs=_update,
        axes=(
            Axis("elements", (64, 500_000), (1024, 20_000_000)),
            choice("tensors", 1, 4, 16, 64),
            choice("kernel", *range(len(_NAMES))),
        ),
    ),
)
