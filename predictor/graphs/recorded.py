"""Networks that a library defines: operators recorded by the tracer, read without torch.

``profiles/graphs`` holds one file a network, written by ``tools/record_graphs.py``, and a manifest
with their hashes. Sizes are laws of the batch size and of the pixels along one side of the image,
or of the tokens of a text.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from math import prod, sqrt
from typing import Any

from profiles.recordings import path_of, recordings

from ..errors import GraphError
from .operator import Direction, Kind, Operator
from .traced import Law, SymbolicOperator, law_of, value

RECORDING_FORMAT = 1


@dataclass(frozen=True, slots=True)
class OperatorLaw:
    """One operator as a file has it: its sizes are places in the list of laws."""

    kind: Kind
    direction: Direction
    dims: tuple[int, ...]
    flops: int
    reads: int
    writes: int
    kernels: int
    count: float
    function: str
    origins: tuple[str, ...] | None

    def sized(self, sizes: Sequence[float], whole: Sequence[int]) -> Operator:
        """The operator at these values of the laws, also rounded."""
        return Operator(
            self.kind,
            self.direction,
            tuple([whole[i] for i in self.dims]),
            sizes[self.flops],
            sizes[self.reads],
            sizes[self.writes],
            sizes[self.kernels],
            self.count,
            self.function,
            self.origins,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Laws of the number of weights, of those that are trained, of their tensors, of the input.

    ``inputs`` are elements of a sample; None where they are those of an image of three channels.
    """

    parameters: Law
    trainable: Law
    tensors: Law
    inputs: Law | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedGraph:
    """The operators of a network for any batch size and image, or length of a text.

    ``side`` are the pixels (tokens) it was recorded with. Where ``any_side`` is false no law of the
    side was found (windows that are padded, fixed positions): what grows with the batch is then
    taken to grow with the pixels. ``sequence`` are places in ``operators``, in the order they run.
    """

    name: str
    side: int
    any_side: bool
    weights: Weights
    laws: tuple[Law, ...]
    operators: tuple[OperatorLaw, ...]
    sequence: tuple[int, ...]

    def operators_at(self, batch: int, image: tuple[int, ...]) -> list[Operator]:
        """The operators of a micro-batch."""
        sizes = [self.size(law, batch, image) for law in self.laws]
        whole = [round(size) for size in sizes]
        sized = [operator.sized(sizes, whole) for operator in self.operators]
        return [sized[i] for i in self.sequence]

    def size(self, law: Law, batch: int, image: tuple[int, ...]) -> float:
        """What a law gives; an image that is no square counts as the square of its pixels."""
        pixels = prod(image)
        if self.any_side:
            return value(law, batch, sqrt(pixels) if len(set(image)) > 1 else image[0])
        share = pixels / self.side ** len(image)
        return sum((c * float(batch**i) * (share if i else 1.0) for c, i, _ in law), 0.0)


@lru_cache(maxsize=256)
def recorded_graph(name: str) -> RecordedGraph:
    """The recording of ``library/model``; raises GraphError where it is missing or was changed."""
    known = recordings().get(name)
    if known is None:
        raise GraphError(f"no recorded graph is named {name}")
    try:
        packed = path_of(name).read_bytes()
    except OSError as error:
        raise GraphError(f"the recorded graph of {name} cannot be read: {error}") from error
    if sha256(packed).hexdigest() != known.sha256:
        raise GraphError(f"the recorded graph of {name} is not the one of the manifest")
    return unpacked(name, packed)


def unpacked(name: str, packed: bytes) -> RecordedGraph:
    """What a file of ``profiles/graphs`` holds; raises GraphError for another format."""
    raw = json.loads(gzip.decompress(packed))
    if raw["format"] != RECORDING_FORMAT:
        raise GraphError(f"the recorded graph of {name} has another format: record it again")
    laws = tuple(law_of(law) for law in raw["laws"])
    weights = {key: laws[place] for key, place in raw["weights"].items()}
    return RecordedGraph(
        name=name,
        side=raw["side"],
        any_side=raw["any_side"],
        weights=Weights(**weights),
        laws=laws,
        operators=tuple(_operator(raw, row) for row in raw["operators"]),
        sequence=tuple(raw["sequence"]),
    )


def packed(
    side: int, any_side: bool, weights: Mapping[str, Law], operators: Sequence[SymbolicOperator]
) -> bytes:
    """The bytes of a recording of operators in the order they run, always the same for the same."""
    laws, names, rows = _Table(), _Table(), _Table()
    sequence = [
        rows.place(
            (
                o.kind,
                o.direction,
                tuple(laws.place(law) for law in o.dims),
                *(laws.place(law) for law in (o.flops, o.reads, o.writes, o.kernels)),
                o.count,
                o.function,
                None if o.origins is None else names.place(o.origins),
            )
        )
        for o in operators
    ]
    content = {
        "format": RECORDING_FORMAT,
        "side": side,
        "any_side": any_side,
        "weights": {key: laws.place(law) for key, law in weights.items()},
        "origins": names.rows,
        "laws": [[(_number(c), i, j) for c, i, j in law] for law in laws.rows],
        "operators": rows.rows,
        "sequence": sequence,
    }
    return gzip.compress(json.dumps(content, separators=(",", ":")).encode(), 9, mtime=0)


class _Table:
    """Distinct rows, and where each is."""

    def __init__(self) -> None:
        self._places: dict[Any, int] = {}

    def place(self, row: Any) -> int:
        return self._places.setdefault(row, len(self._places))

    @property
    def rows(self) -> list[Any]:
        return list(self._places)


def _number(coefficient: float) -> float | int:
    return int(coefficient) if coefficient.is_integer() else coefficient


def _operator(raw: Mapping[str, Any], row: Sequence[Any]) -> OperatorLaw:
    kind, direction, dims, flops, reads, writes, kernels, count, function, origins = row
    names = None if origins is None else tuple(raw["origins"][origins])
    laws = (tuple(dims), flops, reads, writes, kernels)
    return OperatorLaw(Kind(kind), Direction(direction), *laws, float(count), function, names)
