"""The patterns of ``patterns.yaml``, compiled, and the numbers they find as values; see there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from profiles.storage import shipped_yaml

_SCALES = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9}
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3}
_IN = {"mi": 60.0, "h": 3600.0, "ho": 3600.0, "hr": 3600.0, "ms": 1e-3}
CUT = "…"  # of a long line, where its middle is left out
_STAMP_CHARS = 90  # a stamp stands near the start of a line, a whole date anywhere
_PLAIN_YEAR = 2000  # of stamps that name none; it has a 29 February
_PARTS = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?) ?(ms|[dhms:]?)", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Way:
    """A way to say something: lines that hold ``has`` and match; what ``of`` counts, if one thing.

    Of seconds a unit ``to_s`` is what one is in seconds, -1 where it is a rate.
    """

    has: str
    found: re.Pattern[str]
    of: str
    to_s: float

    def search(self, text: str) -> re.Match[str] | None:
        """The match in a line, None where it has none."""
        return self.found.search(text) if self.has in text else None

    def seconds(self, match: re.Match[str]) -> float | None:
        """What a match says a unit takes; None where it says nothing."""
        value = float(match["v"])
        return None if value <= 0 else value * self.to_s if self.to_s > 0 else 1 / value


_RAW: Any = shipped_yaml("patterns.yaml", __file__)
_NAMED = {"n": "count", "f": "number", "d": "duration"}
_PARTS_OF = {short: f"(?:{_RAW[name]})" for short, name in _NAMED.items()} | _RAW["words"]
_PARTS_OF["mon"] = "|".join(_RAW["months"])


def _compiled(text: str) -> re.Pattern[str]:
    return re.compile(text.format(**_PARTS_OF))


def _ways(name: str) -> tuple[Way, ...]:
    return tuple(
        Way(one.get("has", ""), _compiled(one["is"]), one.get("of", ""), one.get("to", 1))
        for one in _RAW[name]
    )


def _counter(unit: str) -> re.Pattern[str]:
    parts = {name: _RAW[name][unit] for name in ("words", "strict", "fraction")}
    return re.compile("".join(_RAW["counter"]).format(**_PARTS_OF, **parts))


BARS, SPECIALS, PER_UNIT = map(_ways, ("bars", "special", "per_unit"))
ELAPSED, ETA, TOOK, STAMPS = (
    tuple(map(_compiled, _RAW[name])) for name in ("elapsed", "eta", "took", "stamps")
)
EPOCH_COUNT, STEP_COUNT = _counter("epoch"), _counter("step")
_ONE = {name: _compiled(text) for name, text in _RAW["one"].items()}
TRAINING_WORDS, LOSS_WORDS, EVALUATION_WORDS, OTHER_WORDS, OTHER_OF, BEGINS = (
    _ONE[name] for name in ("training", "loss", "evaluation", "other", "other_of", "begins")
)
BRACKETS, BARE, RATIO, PART = (_ONE[name] for name in ("brackets", "bare", "ratio", "part"))
TABLE, BETWEEN, CELL, OPTIONS = (_ONE[name] for name in ("table", "between", "cell", "options"))
COUNTED, ENDED, LOADS, SAVES = (_ONE[name] for name in ("counted", "ended", "loads", "saves"))
UNIT_OF = {word: unit for unit, words in _RAW["unit_of"].items() for word in words}
LENGTHS = {unit: _compiled(text) for unit, text in _RAW["lengths"].items()}


def count_of(text: str) -> float:
    """The value of a count: ``12``, ``1,000``, ``1.2k``."""
    scale = _SCALES.get(text[-1], 0.0)
    return float(text[:-1]) * scale if scale else float(text.replace(",", ""))


def seconds_of(text: str | None) -> float | None:
    """The value of a duration, if any: ``1:02:03``, ``2 days, 1:02:03``, ``41s``, ``1h 2m``."""
    if not text or not text[0].isdigit():
        return None
    seconds = clock = 0.0
    for value, mark in _PARTS.findall(text):
        if mark in _SECONDS:
            seconds += float(value) * _SECONDS[mark]
        else:
            clock = (clock + float(value)) * (60 if mark else 1)
    return seconds + clock


def labelled_s(text: str, ways: tuple[re.Pattern[str], ...]) -> float | None:
    """The duration after one of some words of a line; None where it has none."""
    match = next(filter(None, (way.search(text) for way in ways)), None)
    if match is None or (seconds := seconds_of(match["v"])) is None:
        return None
    return seconds * _IN.get((match.groupdict().get("in") or "")[:2], 1.0)


def clock_s(text: str) -> float | None:
    """The stamp near the start of a line in seconds; None without one."""
    if ":" not in text and "_" not in text[:6]:
        return None
    for number, stamp in enumerate(STAMPS):
        if (match := stamp.search(text[:_STAMP_CHARS] if number else text)) is None:
            continue
        found = {name: value for name, value in match.groupdict().items() if value}
        if "ms" in found:
            return float(found["ms"]) / 1000
        month = int(found.get("mo", 1 + _RAW["months"].index(found.get("mon", "Jan"))))
        day = int(found.get("d", 1))
        month, day = (day, month) if month > 12 else (month, day)
        hour, seconds = int(found["h"]), float(found["s"].replace(",", "."))
        if "pm" in found:
            hour = hour % 12 + 12 * (found["pm"] == "PM")
        try:
            moment = datetime(int(found.get("y", _PLAIN_YEAR)), month, day, hour, int(found["mi"]))
        except ValueError:
            return None
        return (moment - datetime(1970, 1, 1)).total_seconds() + seconds
    return None
