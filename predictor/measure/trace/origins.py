"""What decides the format of each tensor of a step under autocast, followed through the step.

A trace runs in FP32. So that the autocast pass can tell which tensors would be of lower format,
each carries the names of those functions of torch's FP32 lists, and ``stored``, that it was
computed from since the last matrix product: with none of them it is of the lower format everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from ...physics.autocast import STORED, listed_name
from .emitted import PRODUCTS
from .names import NAMES

Names = frozenset[str]
LOW: Names = frozenset()


class Origins:
    """The origins of the tensors of one step, by their storage; ``within`` a function of a list.

    ``lowered`` says that a product is being taken apart.
    """

    def __init__(self) -> None:
        self.within: str | None = None
        self.lowered = False
        self._known: dict[int, tuple[torch.Tensor, Names]] = {}  # held: no number is used again

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
    ) -> Names:
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
        if name in NAMES["affine"] or _shares(outputs, floating[0]):
            floating = floating[:1]
        decisive = [t for t in floating if t.dim()] or floating
        own = {self.within} if self.within else set()
        return frozenset(own).union(*(self.known(t) for t in decisive))

    def settle(
        self,
        name: str,
        given: Names,
        tensors: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
    ) -> Names:
        """Note the origins of the results of a function, and give them."""
        listed = listed_name(name)
        result = given | ({listed} if listed else set())
        if name in PRODUCTS or name in NAMES["lowered"]:
            result = LOW
        elif self.lowered:  # a copy on the way to the product
            result = self._computed(tensors)
        for tensor in outputs:
            if not any(_shares([tensor], t) for t in tensors):
                self._known[_storage(tensor)] = (tensor, result)
        return result

    def _computed(self, tensors: Sequence[torch.Tensor]) -> Names:
        """The origins of those of the tensors that are no weights and no inputs of the network."""
        return LOW.union(*(self.known(t) for t in tensors if _storage(t) in self._known))

    def known(self, tensor: torch.Tensor) -> Names:
        """The origins of one tensor."""
        known = self._known.get(_storage(tensor))
        return known[1] if known else frozenset({STORED})


def _shares(outputs: Sequence[torch.Tensor], tensor: torch.Tensor) -> bool:
    """Whether an output is written in the place of a tensor, or is a view of it."""
    return any(_storage(output) == _storage(tensor) for output in outputs)


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
