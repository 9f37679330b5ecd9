"""Node names to GPU types, as small numbers: what is done for thousands of names in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .records import GpuNode, GpuType
from .wire import HostScores

NodeTable = Mapping[str, GpuNode]

# Kept by scores of all types: jobs that rank the types alike share one.
MAX_SCORES = 8

Code = int | None  # None for a name that nothing is known of


class TypeIndex:
    """What a pod that asks for a resource gets on each node of a table, which never changes.

    ``types`` are the GPU types that differ; the code of a type is its place among them.
    """

    def __init__(self, table: NodeTable, resource: str) -> None:
        self.table = table
        self.resource = resource
        kinds = {name: node.type_for(resource) for name, node in table.items()}
        # Equal types are mostly one object: to hash thousands of them would take milliseconds.
        distinct = {id(kind): kind for kind in kinds.values() if kind is not None}
        places: dict[GpuType, int] = {}
        codes = {i: places.setdefault(kind, len(places)) for i, kind in distinct.items()}
        self.types: tuple[GpuType, ...] = tuple(places)
        self._codes = {name: codes[id(kind)] for name, kind in kinds.items() if kind is not None}
        self._host_scores: dict[tuple[int, ...], HostScores] = {}

    def codes(self, names: Sequence[str]) -> list[Code]:
        """The code of each name."""
        return list(map(self._codes.get, names))

    def present(self, names: Sequence[str]) -> frozenset[int]:
        """The codes of the types that names come to."""
        return frozenset(c for c in set(map(self._codes.get, names)) if c is not None)

    def host_scores(self, scores: Mapping[Code, int]) -> HostScores:
        """The text of each node's score, by the codes' scores; 0 for a code that is not there."""
        key = tuple(scores.get(code, 0) for code in range(len(self.types)))
        found = self._host_scores.get(key)
        if found is None:
            if len(self._host_scores) >= MAX_SCORES:
                self._host_scores.clear()
            by_name = {name: score for name, code in self._codes.items() if (score := key[code])}
            found = self._host_scores[key] = HostScores(self.table, by_name)
        return found
