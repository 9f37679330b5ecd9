"""An optimizer of the user's own: its step is run on fake tensors and priced by bytes.

Bytes are what a fused kernel moves: each tensor once for each pass over it. A pass ends where the
result of a reduction is needed (LAMB's norms), and each matrix product is one of its own. So the
figures compare with those of ``profiles/optimizers.yaml``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.utils._python_dispatch import TorchDispatchMode

from ...errors import GraphError, JobError
from ...graphs.families.stored import Update
from .calls import NAMES
from .recording import storage_of, tensors_of

Factory = Callable[[Iterable[torch.nn.Parameter]], Any]

# Tensors of one launch of a kernel that reads three lists (ATen/native/cuda/MultiTensorApply.cuh).
MULTI_TENSOR = 48
_HOST = NAMES["free"] | {"_local_scalar_dense"}
_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "linear", "mv"})


def traced_update(factory: Factory, parameters: Sequence[torch.nn.Parameter]) -> Update:
    """What the second step of ``factory(parameters)`` costs; parameters have gradients.

    Raises JobError where the factory gives no optimizer.
    """
    try:
        made = factory(parameters)
    except (TypeError, ValueError) as error:
        raise JobError("optimizer", factory, f"expected f(parameters) ({error})") from error
    if not callable(getattr(made, "step", None)):
        raise JobError("optimizer", factory, "expected what gives a torch optimizer")
    if len(parameters) == 0:
        raise GraphError("no parameter of the network has a gradient: nothing to update")
    with _Values():  # type: ignore[no-untyped-call]
        made.step()  # makes its state
        held = getattr(made, "state", {}).values()
        kept = tensors_of(v for of in held if isinstance(of, Mapping) for v in of.values())
        state = list({storage_of(t): t for t in kept}.values())
        passes = _Passes([*parameters, *(p.grad for p in parameters if p.grad is not None), *state])
        with passes:
            made.step()
    elements = max(1, sum(p.numel() for p in parameters))
    return Update(
        bytes_per_parameter=passes.total_bytes() / elements,
        state_bytes_per_parameter=sum(map(_bytes, state)) / elements,
        launches_per_tensor=passes.launches / max(1, len(parameters)),
        products=tuple(f"{name} x{times}" for name, times in sorted(passes.products.items())),
    )


class _Values(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Answers what an optimizer asks of a value (``.item()``): no rule of update hangs on it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return func(*args, **(kwargs or {}))
        except DataDependentOutputException:
            return 0.5 if args[0].is_floating_point() else args[0].dtype is not torch.bool


class _Passes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts launches, and the bytes of passes over the tensors that ``held`` starts with."""

    def __init__(self, held: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.launches = 0.0
        self.products: Counter[str] = Counter()
        self._alive = {storage_of(t): t for t in held}  # held, so that no storage is used again
        self._kept = frozenset(self._alive)
        self._moved = 0.0
        self._read: set[int] = set()
        self._written: set[int] = set()
        self._reduced: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        if func.namespace == "aten" and not func.is_view and name not in _HOST:
            inputs = list(tensors_of((*args, *(kwargs or {}).values())))
            self._note(name, func, inputs, args, list(tensors_of([result])))
        return result

    def total_bytes(self) -> float:
        """Bytes of all passes."""
        self._end()
        return self._moved

    def _note(
        self,
        name: str,
        func: Any,
        inputs: list[torch.Tensor],
        args: Sequence[Any],
        outputs: list[torch.Tensor],
    ) -> None:
        many = len(args[0]) if args and isinstance(args[0], list | tuple) else 0
        self.launches += ceil(many / MULTI_TENSOR) if many else 1
        product = name in _PRODUCTS
        if product or any(storage_of(t) in self._reduced for t in inputs):
            self._end()
        pairs = zip(func._schema.arguments, args, strict=False)
        in_place = tensors_of(v for a, v in pairs if a.alias_info and a.alias_info.is_write)
        written = [*outputs, *in_place]
        self._alive |= {storage_of(t): t for t in (*inputs, *written)}
        for key in map(storage_of, inputs):
            if key not in self._written and key not in self._read:
                self._read.add(key)
                # What does not stay was written before it is read.
                self._moved += _bytes(self._alive[key]) * (1 if key in self._kept else 2)
        self._written |= set(map(storage_of, written))
        if torch.Tag.pointwise not in func.tags and sum(map(_bytes, written)) * 2 < sum(
            map(_bytes, inputs)
        ):
            self._reduced |= {storage_of(t) for t in outputs}
        if product:
            self.products[name] += 1
            self._end()

    def _end(self) -> None:
        """A pass ends: what stays was written, what is left of it is written when read again."""
        self._moved += sum(_bytes(self._alive[key]) for key in self._written & self._kept)
        self._read.clear()
        self._written.clear()
        self._reduced.clear()


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
