"""Durations as people and Go write them: ``4h``, ``1h30m``, ``PT4H``, ``14400``."""

from __future__ import annotations

import re

_SECONDS = re.compile(r"\d{1,10}(?:\.\d{1,6})?", re.ASCII)
_GO = re.compile(r"(?:(?:\d{1,9}(?:\.\d{1,6})?)(?:ms|[dhms]))+", re.ASCII)
_GO_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])", re.ASCII)
_ISO = re.compile(r"P(?:(\d{1,6})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,10})S)?)?", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_ISO_UNITS = (86400.0, 3600.0, 60.0, 1.0)
MOST = 64

EXPECTED = "a duration such as 4h, 1h30m, PT4H or a number of seconds"


def seconds_of(text: str) -> float | None:
    """The seconds of a duration above 0; None for any other text. ``d`` is a day of 24 hours."""
    text = text.strip()
    if len(text) > MOST:
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
