"""Node names to GPU types, as small numbers: what is done for thousands of names in one call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import orjson

from .records import GpuNode, GpuType

# Kept of one table: jobs that rank the types alike share the text.
MAX_SCORES = 8

NodeTable = Mapping[str, GpuNode]
TypeCode = int | None  # None for a name that nothing is known of


class HostScores(dict[str, str]):
    """The JSON of each node's score, made when its name is first looked up.

    ``by_code`` are the scores of the types; a name that nothing is known of gets 0 and is not kept.
    """

    def __init__(self, codes: Mapping[str, int], by_code: Sequence[int]) -> None:
        super().__init__()
        self._codes = codes
        self._by_code = by_code

    def score(self, name: str) -> int:
        """The score of a node."""
        code = self._codes.get(name)
        return 0 if code is None else self._by_code[code]

    def __missing__(self, name: str) -> str:
        text = orjson.dumps({"Host": name, "Score": self.score(name)}).decode()
        if name in self._codes:
            self[name] = text
        return text


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
        self._room = Counter[tuple[str, str | None]]()
        for kind in kinds.values():
            if kind is not None:
                self._room[kind.product, kind.mig] += kind.count * kind.replicas
        self._codes = {name: codes[id(kind)] for name, kind in kinds.items() if kind is not None}
        self._host_scores: dict[tuple[int, ...], HostScores] = {}

    def room(self, kind: GpuType) -> int:
        """GPUs of a type's product in the table, whatever runs on them."""
        return self._room[kind.product, kind.mig]

    def codes(self, names: Sequence[str]) -> list[TypeCode]:
        """The code of each name."""
        return list(map(self._codes.get, names))

    def host_scores(self, by_code: tuple[int, ...]) -> HostScores:
        """The scores of the nodes, by those of their types."""
        found = self._host_scores.get(by_code)
        if found is None:
            if len(self._host_scores) >= MAX_SCORES:
                self._host_scores.clear()
            found = self._host_scores[by_code] = HostScores(self._codes, by_code)
        return found
