"""A catalog entry, and the torch network that it describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from predictor.graphs.catalog import Pairs, entry_of

Sizes = Mapping[str, Any]
Build = Callable[[Sizes], torch.nn.Module]
BATCH = 4
TOKENS: Mapping[str, tuple[int | str, ...]] = {"input_ids": ("S",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """``build`` makes the network of an entry's sizes; ``changes`` make the entry the same network.

    ``inputs`` are arguments of ``forward`` by name, sizes of one sample with ``S`` for the sequence
    length ``seq_len``; None for one image. Inputs of one axis hold integers. ``depth`` says that
    ``layers`` is an argument of the entry's builder, so that a comparison can choose fewer.
    """

    name: str
    build: Build
    inputs: Mapping[str, tuple[int | str, ...]] | None = None
    seq_len: int | None = None
    changes: Pairs = ()
    depth: bool = False

    def sizes(self, *, layers: int) -> dict[str, Any]:
        """The entry's architecture, of so many layers where that can be chosen."""
        found = dict(entry_of(self.name).architecture)
        return found | ({"layers": layers} if self.depth else {})

    def variant(self, *, layers: int) -> Pairs:
        """Changes to the entry, for so many layers where that can be chosen."""
        return (*self.changes, ("layers", str(layers))) if self.depth else self.changes

    def examples(self) -> torch.Tensor | dict[str, torch.Tensor]:
        """Inputs without data."""
        if self.inputs is None:
            size = entry_of(self.name).image_size or ()
            return torch.empty((BATCH, 3, *size), device="meta")
        return {name: self._example(sizes) for name, sizes in self.inputs.items()}

    def _example(self, sizes: tuple[int | str, ...]) -> torch.Tensor:
        shape = [(self.seq_len or 0) if size == "S" else int(size) for size in sizes]
        dtype = torch.long if len(sizes) == 1 else torch.float32
        return torch.empty((BATCH, *shape), dtype=dtype, device="meta")
