"""A function behind a matrix product under autocast: as torch runs it, as the pass types it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from predictor.graphs.operator import Graph, Kind  # noqa: E402
from predictor.job.precision import Dtype, Precision  # noqa: E402
from predictor.measure.trace.calls import NAMES  # noqa: E402
from predictor.measure.trace.mapping import mapped  # noqa: E402
from predictor.measure.trace.request import of_examples  # noqa: E402
from predictor.measure.trace.step import FakeNetwork, loss_named  # noqa: E402
from predictor.physics.autocast import CUDA_CAST, CUDA_WIDEN, TypedOperator, autocast  # noqa: E402
from profiles.gpus import CPU, find_gpu  # noqa: E402

SIDE = 8
LOW = torch.bfloat16
GPUS = {"cuda": find_gpu("a100"), "cpu": replace(find_gpu("a100"), kind=CPU)}
FORMATS = {torch.float32: Dtype.FP32, LOW: Dtype.BF16}
Function = Callable[[Any, Any], Any]


class Behind(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A product, whose result is of the lower format, and a function of it and an FP32 weight."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.product = torch.nn.Linear(SIDE, SIDE, bias=False)
        self.weight = torch.nn.Parameter(torch.full((SIDE, SIDE), 0.5))
        self._function = function

    def forward(self, x: Any) -> Any:
        return self._function(self.product(x), self.weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """An operator that torch dispatched: its name, and the formats it read and wrote."""

    name: str
    inputs: tuple[Dtype, ...]
    output: Dtype
    backward: bool


class Dispatched(TorchDispatchMode):  # type: ignore[misc]
    """Every operator that launches work on floating point numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[Ran] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        made = _formats(result)
        if made and func.namespace == "aten" and not (func.is_view or name in NAMES["free"]):
            self.ran.append(
                Ran(
                    name=name,
                    inputs=_formats(args),
                    output=made[0],
                    backward=torch._C._current_autograd_node() is not None,
                )
            )
        return result


def _formats(values: Any) -> tuple[Dtype, ...]:
    leaves = torch.utils._pytree.tree_leaves(values)
    found = [v.dtype for v in leaves if isinstance(v, torch.Tensor) and v.is_floating_point()]
    return tuple(FORMATS[dtype] for dtype in found)


def typed(module: Any, device: str, *, one_by_one: bool = False) -> list[TypedOperator]:
    """What the autocast pass makes of the traced network, weight casts left out."""
    inputs = of_examples(torch.empty(SIDE, SIDE), None)[0]
    calls = FakeNetwork(module).step(inputs, loss_named("sum"), SIDE, 0)
    graph = Graph(mapped(calls).operators, 0, 0, 0, 0, 0.0)
    found = autocast(graph, Precision.MIXED_BF16_FP32, GPUS[device], one_by_one=one_by_one)
    assert found[-1].operator.kind is Kind.CAST  # of the weights
    return list(found[:-1])


def forward_on_cuda(function: Function) -> tuple[Dtype, list[Ran]]:
    """Result and operators of torch's CUDA autocast over fake tensors: its dispatch is real."""
    with _enabled("cuda"), FakeTensorMode(), torch.no_grad():
        low = torch.empty(SIDE, SIDE, device="cuda", dtype=LOW)
        weight = torch.empty(SIDE, SIDE, device="cuda")
        with Dispatched() as seen:
            result = function(low, weight)
    return FORMATS[result.dtype], seen.ran


def step_on_cpu(
    module: Any, lists: AbstractContextManager[Any] | None = None
) -> tuple[Dtype, list[Ran]]:
    """Result and operators of a real step under torch's CPU autocast, or under other ``lists``."""
    with Dispatched() as seen:
        with _enabled("cpu"), lists or nullcontext():
            result = module(torch.rand(SIDE, SIDE))
            total = result.sum()
        total.backward()
    return FORMATS[result.dtype], seen.ran


class CudaLists(TorchFunctionMode):  # type: ignore[misc]
    """Casts around functions of the CUDA lists, on any device: what CUDA autocast does to them."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        name = _SPELT.get(func.__name__, func.__name__)
        kwargs = dict(kwargs or {})
        if name in CUDA_CAST:
            args = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.float(), args)
        elif name in CUDA_WIDEN:
            kwargs.setdefault("dtype", torch.float32)
        return func(*args, **kwargs)


_SPELT = {"vector_norm": "linalg_vector_norm", "__pow__": "pow"}


@contextmanager
def _enabled(device: str) -> Iterator[None]:
    """``torch.autocast`` refuses CUDA where torch was built without."""
    torch.set_autocast_enabled(device, True)
    torch.set_autocast_dtype(device, LOW)
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        if not torch.autocast_decrement_nesting():
            torch.clear_autocast_cache()
        torch.set_autocast_enabled(device, False)
