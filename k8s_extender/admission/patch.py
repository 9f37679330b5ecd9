"""A JSON patch (RFC 6902) that only adds: what is there already stays as it is.

A patch that does not apply makes the API server refuse the object, so where a parent is of another
type than expected nothing is added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from ..plain import JsonPath, at

MAX_ANNOTATIONS_BYTES = 256 * 1024


class Patch:
    """The additions to one object."""

    def __init__(self, obj: Mapping[str, Any]) -> None:
        self._object = obj
        self._made: dict[JsonPath, object] = {}
        self.operations: list[dict[str, Any]] = []

    def put(self, path: JsonPath, value: object) -> bool:
        """Add a value with the objects it lies in; False where something is there already."""
        if path in self._made or at(self._object, *path) is not None or not self._open(path):
            return False
        for parent in (path[:depth] for depth in range(1, len(path))):
            if parent not in self._made and at(self._object, *parent) is None:
                self._add(parent, {})
        self._add(path, value)
        return True

    def extend(self, path: JsonPath, values: Sequence[object]) -> bool:
        """Add values at the end of a list, made where it is absent; False where there is none."""
        if at(self._object, *path) is None:
            return self.put(path, list(values))
        if not isinstance(at(self._object, *path), list):
            return False
        for value in values:
            self._operation((*path, "-"), value)
        return True

    def annotate(self, metadata: JsonPath, annotations: Mapping[str, str]) -> None:
        """Add annotations, none of them where all together would be more than is allowed."""
        place: JsonPath = (*metadata, "annotations")
        there = at(self._object, *place)
        there = there if isinstance(there, Mapping) else {}
        pairs = {k: v for k, v in annotations.items() if there.get(k) is None}
        added = {path[-1]: value for path, value in self._made.items() if path[:-1] == place}
        held = (str(text) for pair in {**there, **added, **pairs}.items() for text in pair)
        if sum(len(text.encode(errors="replace")) for text in held) <= MAX_ANNOTATIONS_BYTES:
            for key, value in pairs.items():
                self.put((*place, key), value)

    def _open(self, path: JsonPath) -> bool:
        """Whether all that is there on the way can hold the next step; lists are never longer."""
        for depth, step in enumerate(path):
            held = at(self._object, *path[:depth])
            if isinstance(step, int):
                if at(self._object, *path[: depth + 1]) is None:
                    return False
            elif held is not None and not isinstance(held, Mapping):
                return False
        return True

    def _add(self, path: JsonPath, value: object) -> None:
        self._made[path] = value
        self._operation(path, value)

    def _operation(self, path: JsonPath, value: object) -> None:
        pointer = "".join(f"/{_escaped(str(step))}" for step in path)
        self.operations.append({"op": "add", "path": pointer, "value": value})


def applies(obj: Mapping[str, Any], operations: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the API server would apply a patch of additions: it refuses the object if not."""
    try:
        document = orjson.loads(orjson.dumps(obj))
        for operation in operations:
            *parents, last = (_unescaped(step) for step in operation["path"].split("/")[1:])
            place = document
            for step in parents:
                place = place[int(step) if isinstance(place, list) else step]
            if isinstance(place, list):
                place.insert(len(place) if last == "-" else int(last), operation["value"])
            else:
                place[last] = operation["value"]
    except (orjson.JSONEncodeError, KeyError, IndexError, TypeError, ValueError):
        return False
    return True


def _unescaped(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")
