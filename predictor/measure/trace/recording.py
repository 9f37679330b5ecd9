"""Listens to torch while a step runs on fake tensors, and notes every operator it calls.

Gradients find their forward operator by autograd's sequence number: a node is numbered just before
its forward operator is dispatched, and its backward operators run while that node is current.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from ...physics.autocast import STORED, listed_name
from .calls import NAMES, Tensor, TracedCall
from .mapping import PRODUCTS

_DEVICE = torch.ops.prim.device.default
LOW: frozenset[str] = frozenset()


class Origins:
    """What decides the format of each tensor of a step under autocast, by its storage.

    A trace runs in FP32. So that the autocast pass can tell which tensors would be of lower format,
    each carries the names of those functions of torch's FP32 lists, and ``stored``, that it was
    computed from since the last matrix product: with none of them it is of the lower format
    everywhere. ``within`` is a function of a list; ``lowered`` says that a product is being taken
    apart.
    """

    def __init__(self) -> None:
        self.within: str | None = None
        self.lowered = False
        self._known: dict[
            int, tuple[torch.Tensor, frozenset[str]]
        ] = {}  # held: no number is used again

    @contextmanager
    def apart(self, name: str) -> Iterator[None]:
        """What is called inside belongs to this function, where torch takes it apart."""
        outer = self.within, self.lowered
        if self.within is None and name in NAMES["taken_apart"]:
            self.within = listed_name(name)
        self.lowered |= name in NAMES["lowered_apart"]
        try:
            yield
        finally:
            self.within, self.lowered = outer

    def of(
        self, name: str, tensors: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> frozenset[str]:
        """What decides the format that a function works in, before autocast looks at its name.

        Of a product, the origins of what was computed before; its weights are cast once a step.
        """
        floating = [t for t in tensors if t.is_floating_point()]
        if name in PRODUCTS:
            return self._computed(floating)
        if name in NAMES["lowered"] or self.lowered:
            return LOW
        if not floating:
            return frozenset({STORED})
        if name in NAMES["affine"] or storage_of(floating[0]) in map(storage_of, outputs):
            floating = floating[:1]
        decisive = [t for t in floating if t.dim()] or floating
        own = {self.within} if self.within else set()
        return frozenset(own).union(*(self.known(t) for t in decisive))

    def settle(
        self,
        name: str,
        given: frozenset[str],
        tensors: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
    ) -> frozenset[str]:
        """Note the origins of the results of a function, and give them."""
        listed = listed_name(name)
        result = given | ({listed} if listed else set())
        if name in PRODUCTS or name in NAMES["lowered"]:
            result = LOW
        elif self.lowered:  # a copy on the way to the product
            result = self._computed(tensors)
        before = set(map(storage_of, tensors))
        for tensor in outputs:
            if storage_of(tensor) not in before:
                self._known[storage_of(tensor)] = (tensor, result)
        return result

    def _computed(self, tensors: Sequence[torch.Tensor]) -> frozenset[str]:
        """The origins of those of the tensors that are no weights and no inputs of the network."""
        return LOW.union(*(self.known(t) for t in tensors if storage_of(t) in self._known))

    def known(self, tensor: torch.Tensor) -> frozenset[str]:
        """The origins of one tensor."""
        known = self._known.get(storage_of(tensor))
        return known[1] if known else frozenset({STORED})


class CallRecording(TorchDispatchMode):  # type: ignore[no-untyped-call]
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

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
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
            self.calls.append(call)
            if self._advanced():
                self._seen = torch._C._autograd._get_sequence_nr()
                self._by_node[self._seen - 1] = call
        else:
            self._backward(call, node._sequence_nr())
        return call

    def _advanced(self) -> bool:
        return bool(torch._C._autograd._get_sequence_nr() != self._seen)

    def _backward(self, call: TracedCall, node: int) -> None:
        owner = self._visit(node)
        if owner is None or call.free:
            return
        joined = call.name in ("add", "add_") and len(call.inputs) == 2
        if joined and call.inputs[0].shape == call.inputs[1].shape:
            # Gradients are summed behind the call, those of one of its inputs.
            shape = call.outputs[0].shape
            alike = [t for t in owner.inputs if t.shape == shape and t.trained and not t.weight]
            call.result = LOW.union(*(t.origins for t in alike or owner.inputs))
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
        sizes = zip(tensor.shape, tensor.stride(), strict=True)
        distinct = prod(size for size, stride in sizes if stride or not size)  # a broadcast is once
        held = min(distinct, tensor.untyped_storage().nbytes() // width)
        plain = tensor.is_floating_point() or tensor.is_complex()
        return Tensor(
            shape=tuple(tensor.shape),
            moved=float(held) if plain else held * width / 4,
            weight=storage in self._weights,
            trained=tensor.requires_grad,
            sparse=storage in self._sparse,
            origins=self.origins.known(tensor),
        )


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
