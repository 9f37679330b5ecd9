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


_SECONDS = re.compile(r"\d{1,10}(?:\.\d{1,6})?", re.ASCII)
_GO = re.compile(r"(?:(?:\d{1,9}(?:\.\d{1,6})?)(?:ms|[dhms]))+", re.ASCII)
_GO_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])", re.ASCII)
_ISO = re.compile(r"P(?:(\d{1,6})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,10})S)?)?", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_ISO_UNITS = (86400.0, 3600.0, 60.0, 1.0)
LONGEST_DURATION = 64

EXPECTED = "a duration such as 4h, 1h30m, PT4H or a number of seconds"


def seconds_of(text: str) -> float | None:
    """The seconds of a duration above 0; None for any other text. ``d`` is a day of 24 hours."""
    text = text.strip()
    if len(text) > LONGEST_DURATION:
        return None
    if _SECONDS.fullmatch(text):
        found = float(text)
    elif _GO.fullmatch(text):
        found = sum(float(number) * _UNITS[unit] for number, unit in _GO_PART.findall(text))
    elif match := _ISO.fullmatch(text):
        found = sum(
            float(number or 0) * unit
            for number, unit in zip(match.groups(), _ISO_UNITS, strict=True)
        )
    else:
        return None
    return found if found > 0 else None


def go_duration(seconds: float) -> str:
    """As ``time.ParseDuration`` of Go reads it, in whole seconds: ``3h12m``, ``45s``."""
    whole = max(1, round(seconds))
    hours, rest = divmod(whole, 3600)
    parts = ((hours, "h"), (rest // 60, "m"), (rest % 60, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number)
