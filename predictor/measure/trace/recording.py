"""Listens to torch while a step runs on fake tensors, and notes every operator it calls.

Gradients find their forward operator by autograd's sequence number: a node is numbered just before
its forward operator is dispatched, and its backward operators run while that node is current.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from .calls import Tensor, TracedCall
from .names import NAMES
from .origins import Origins

_DEVICE = torch.ops.prim.device.default


class Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The operator calls of one step, forward calls in their order."""

    def __init__(self, sparse: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[TracedCall] = []
        self.norm: int | None = None
        self.origins = Origins()
        self._by_node: dict[int, TracedCall] = {}
        self._seen = torch._C._autograd._get_sequence_nr()
        self._weights: dict[int, torch.Tensor] = {}  # storages, held so that none is used again
        self._sparse = {storage_of(t) for t in sparse}

    def weights(self, parameters: Iterable[torch.Tensor]) -> None:
        """Mark these tensors, and all views of them, as weights."""
        self._weights |= {storage_of(p): p for p in parameters}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run one operator and note it."""
        if func is _DEVICE and isinstance(args[0], FakeTensor):  # asked more often than all else
            result = args[0].fake_device
        else:
            result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        node = torch._C._current_autograd_node()
        if func.namespace == "prim":  # questions to a tensor, also between a node and its operator
            if node is not None:
                self._visit(node._sequence_nr())
            return result
        free = func.is_view or name in NAMES["free"]
        values = (*args, *(kwargs or {}).values())
        if not free or node is not None or self._advanced():
            self.note(name, values, result, free=free, pointwise=torch.Tag.pointwise in func.tags)
        return result

    def backward_of(self, total: torch.Tensor) -> None:
        """Run the backward pass of a loss on tensors of the meta device.

        Those ask nothing between a node and its operator, so what it reaches is looked up.
        """
        nodes = list(_nodes_behind(total))
        total.backward()  # type: ignore[no-untyped-call]
        for node in nodes:
            self._visit(node)

    def note(
        self,
        name: str,
        values: Sequence[Any],
        result: Any,
        *,
        free: bool = False,
        pointwise: bool = False,
    ) -> TracedCall:
        """Add one call, to the forward pass or to the call whose gradient it belongs to."""
        tensors = list(tensors_of(values))
        outputs = list(tensors_of([result]))
        node = torch._C._current_autograd_node()
        forward = node is None or torch.is_grad_enabled()
        call = TracedCall(
            name=name,
            inputs=tuple(map(self._tensor, tensors)),
            outputs=tuple(map(self._tensor, outputs)),
            arguments=tuple(None if isinstance(v, torch.Tensor) else v for v in values),
            free=free,
            pointwise=pointwise,
            norm=self.norm,
        )
        if tensors and all(storage_of(t) in self._weights for t in tensors):
            self.weights(outputs)
        if forward:
            call.given = self.origins.of(name, tensors, outputs)
            call.result = self.origins.settle(name, call.given, tensors, outputs)
            self._forward(call)
        else:
            self._backward(call, node._sequence_nr())
        return call

    def _advanced(self) -> bool:
        return bool(torch._C._autograd._get_sequence_nr() != self._seen)

    def _forward(self, call: TracedCall) -> None:
        self.calls.append(call)
        if self._advanced():
            self._seen = torch._C._autograd._get_sequence_nr()
            self._by_node[self._seen - 1] = call

    def _backward(self, call: TracedCall, node: int) -> None:
        owner = self._visit(node)
        if owner is None or call.free:
            return
        joined = call.name in ("add", "add_") and len(call.inputs) == 2
        if joined and call.inputs[0].shape == call.inputs[1].shape:
            call.result = _joined_origins(owner, call.outputs[0].shape)
            owner.additions.append(call)
        else:
            owner.gradients.append(call)

    def _visit(self, node: int) -> TracedCall | None:
        """The call a node belongs to; None for the end of a gradient in its parameter."""
        owner = self._by_node.get(node)
        if owner is not None:
            owner.reached = True
        return owner

    def _tensor(self, tensor: torch.Tensor) -> Tensor:
        storage = storage_of(tensor)
        width = tensor.element_size()
        held = min(_distinct(tensor), tensor.untyped_storage().nbytes() // width)
        plain = tensor.is_floating_point() or tensor.is_complex()
        return Tensor(
            shape=tuple(tensor.shape),
            moved=float(held) if plain else held * width / 4,
            weight=storage in self._weights,
            trained=tensor.requires_grad,
            sparse=storage in self._sparse,
            origins=self.origins.known(tensor),
        )


def _joined_origins(owner: TracedCall, shape: tuple[int, ...]) -> frozenset[str]:
    """Of the gradients summed behind a call, which are those of one of its inputs."""
    alike = [t for t in owner.inputs if t.shape == shape and t.trained and not t.weight]
    return frozenset().union(*(t.origins for t in alike or owner.inputs))


def _nodes_behind(total: torch.Tensor) -> Iterator[int]:
    """Sequence numbers of every node of autograd that a gradient comes by."""
    waiting, seen = [total.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [behind for behind, _ in node.next_functions]
            yield int(node._sequence_nr())


def _distinct(tensor: torch.Tensor) -> int:
    """Elements, what is broadcast counted once."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return prod(size for size, stride in sizes if stride or not size)


def storage_of(tensor: torch.Tensor) -> int:
    """A number that all views of one tensor share."""
    return int(tensor.untyped_storage()._cdata)


def tensors_of(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The tensors among these values, and in lists of them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_of(value)
