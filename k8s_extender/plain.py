"""Reading JSON of others: a value of another type than expected counts as absent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_COUNT = re.compile(r"\d{1,10}", re.ASCII)
# The longest activeDeadlineSeconds of a pod.
MOST = 2**31 - 1

JsonPath = tuple[str | int, ...]


def at(value: Any, *path: str | int) -> Any:
    """What lies at a path of keys and indexes, or None."""
    for step in path:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def mapping(value: Any, *path: str | int) -> Mapping[str, Any]:
    """The object at a path, or an empty one."""
    found = at(value, *path)
    return found if isinstance(found, dict) else {}


def items(value: Any, *path: str | int) -> list[Any]:
    """The array at a path, or an empty one."""
    found = at(value, *path)
    return found if isinstance(found, list) else []


def text(value: Any, *path: str | int) -> str:
    """The string at a path, or an empty one."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def texts(value: Any, *path: str | int) -> dict[str, str]:
    """The pairs of strings of the object at a path."""
    return {
        k: v for k, v in mapping(value, *path).items() if isinstance(k, str) and isinstance(v, str)
    }


def count(value: Any, *path: str | int) -> int | None:
    """The whole number from 0 to ``MOST`` at a path, as a number or as digits, or None."""
    found = at(value, *path)
    if isinstance(found, str) and _COUNT.fullmatch(found):
        found = int(found)
    return found if type(found) is int and 0 <= found <= MOST else None
