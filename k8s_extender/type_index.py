"""Node names to GPU types, as small numbers: what is done for thousands of names in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .records import GpuNode, GpuType

NodeTable = Mapping[str, GpuNode]
TypeCode = int | None  # None for a name that nothing is known of


class TypeIndex:
    """What a pod that asks for a resource gets on each node of a table, which never changes.

    ``types`` are the GPU types that differ; the code of a type is its place among them.
    """

    def __init__(self, table: NodeTable, resource: str) -> None:
        self.table = table
        kinds = {name: node.type_for(resource) for name, node in table.items()}
        # Equal types are mostly one object: to hash thousands of them would take milliseconds.
        distinct = {id(kind): kind for kind in kinds.values() if kind is not None}
        places: dict[GpuType, int] = {}
        codes = {i: places.setdefault(kind, len(places)) for i, kind in distinct.items()}
        self.types: tuple[GpuType, ...] = tuple(places)
        self._codes = {name: codes[id(kind)] for name, kind in kinds.items() if kind is not None}

    def codes(self, names: Sequence[str]) -> list[TypeCode]:
        """The code of each name."""
        return list(map(self._codes.get, names))
