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
    length ``seq_len``; empty for one image. Inputs of one axis hold integers, but ``input_values``.
    ``depth`` says that ``layers`` is an argument of the entry's builder, so that a test can make it
    2. ``differs`` says why FLOPs differ by more than 1 %, where they do.
    """

    name: str
    build: Build
    inputs: Mapping[str, tuple[int | str, ...]] | None = None
    seq_len: int | None = None
    changes: Pairs = ()
    depth: bool = False
    differs: str = ""

    def sizes(self, *, shallow: bool) -> dict[str, Any]:
        """The entry's architecture; at two layers where ``shallow`` and possible."""
        found = dict(entry_of(self.name).architecture)
        return found | ({"layers": 2} if shallow and self.depth else {})

    def variant(self, *, shallow: bool) -> Pairs:
        """Changes to the entry, with two layers where ``shallow`` and possible."""
        return (*self.changes, ("layers", "2")) if shallow and self.depth else self.changes

    def examples(self) -> torch.Tensor | dict[str, torch.Tensor]:
        """Inputs without data."""
        if self.inputs is None:
            size = entry_of(self.name).image_size or ()
            return torch.empty((BATCH, 3, *size), device="meta")
        return {name: self._example(name, sizes) for name, sizes in self.inputs.items()}

    def _example(self, name: str, sizes: tuple[int | str, ...]) -> torch.Tensor:
        shape = [(self.seq_len or 0) if size == "S" else int(size) for size in sizes]
        whole = len(sizes) == 1 and name != "input_values"
        dtype = torch.long if whole else torch.float32
        return torch.empty((BATCH, *shape), dtype=dtype, device="meta")
