"""The patterns of ``patterns.yaml``, compiled, and the numbers they find as values; see there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from profiles.storage import shipped_yaml

_SCALES = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9}
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_PARTS = re.compile(r"(\d+(?:\.\d+)?) ?([dhms])", re.ASCII)


@dataclass(frozen=True, slots=True)
class Special:
    """A format of its own: lines that hold ``has`` and match count ``unit``."""

    has: str
    unit: str
    found: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class PerUnit:
    """A way to say seconds a unit; ``to_s`` is the seconds of one, -1 where it is a rate."""

    found: re.Pattern[str]
    to_s: float

    def seconds(self, match: re.Match[str]) -> float | None:
        """What a match says; None where it says nothing."""
        value = float(match["v"])
        return None if value <= 0 else value * self.to_s if self.to_s > 0 else 1 / value


_RAW: Any = shipped_yaml("patterns.yaml", __file__)
_PARTS_OF = {
    "n": f"(?:{_RAW['count']})",
    "f": f"(?:{_RAW['number']})",
    "d": f"(?:{_RAW['duration']})",
}


def _compiled(text: str) -> re.Pattern[str]:
    return re.compile(text.format(**_PARTS_OF))


def _all(name: str) -> tuple[re.Pattern[str], ...]:
    return tuple(map(_compiled, _RAW[name]))


def _counter(unit: str) -> re.Pattern[str]:
    """``Epoch [3/100]``, ``epoch=003``, ``"epoch": "3/200"``, ``Step 120 of 340``."""
    free, strict = _RAW["words"][unit], _RAW["strict"][unit]
    named = rf"(?:{free})(?: ?(?:#|no\.?|number|idx)|\(train\))?[\"']?"
    loose = named + r"(?: {{0,30}}\| ?| ?[:=#_-] ?| )? *[\"']?[\[(<]? *"
    tight = rf"(?:{strict})[\"']? ?(?:[:=#] ?[\"']?[\[(<]? *|[\[(<] *)"
    fraction = r"(?P<frac>\.\d{{1,12}})?" if unit == "epoch" else ""
    total = r"(?: *[\])]? *(?:/|\bof\b|\bout of\b) *[\[(]?(?P<total>{n}))?"
    before = r"(?<![A-Za-z_/.%-])(?<!otal )(?<!icro )(?<!umber of )(?<!each )(?<!per )"
    return _compiled(
        rf"(?i:{before}(?:{loose}|{tight}))(?P<at>{{n}}){fraction}(?![\w%]|:\d|\.\d){total}"
    )


BARS, STAMPS = _all("bars"), _all("stamps")
ELAPSED, ETA, TOOK = _all("elapsed"), _all("eta"), _all("took")
EPOCH_COUNT, STEP_COUNT = _counter("epoch"), _counter("step")
# ``200/2983 batches``, ``29015th step``, ``3/50 epochs``.
COUNTED = _compiled(
    r"(?<![\w.])(?P<at>{n})(?: *(?:/|of) *(?P<total>{n})|(?:st|nd|rd|th)) +"
    rf"(?i:(?P<step>{_RAW['words']['step']})|(?P<epoch>{_RAW['words']['epoch']}))(?![\w/])"
)
_ONE = {name: _compiled(text) for name, text in _RAW["one"].items()}
TRAINING_WORDS, LOSS_WORDS, EVALUATION_WORDS = (
    _ONE[name] for name in ("training", "loss", "evaluation")
)
OTHER_WORDS, OTHER_OF, ENDED = (_ONE[name] for name in ("other", "other_of", "ended"))
BRACKETS, BARE, RATIO, PART = (_ONE[name] for name in ("brackets", "bare", "ratio", "part"))
SPECIALS = tuple(Special(s["has"], s["unit"], _compiled(s["is"])) for s in _RAW["special"])
PER_UNIT = tuple(PerUnit(_compiled(one["is"]), one["to"]) for one in _RAW["per_unit"])
UNIT_OF = {word: unit for unit, words in _RAW["unit_of"].items() for word in words}
LENGTHS = {unit: _compiled(text) for unit, text in _RAW["lengths"].items()}
MONTHS: tuple[str, ...] = tuple(_RAW["months"])


def count_of(text: str) -> float:
    """The value of a count: ``12``, ``1,000``, ``1.2k``."""
    scale = _SCALES.get(text[-1], 0.0)
    return float(text[:-1]) * scale if scale else float(text.replace(",", ""))


def seconds_of(text: str) -> float:
    """The value of a duration: ``1:02:03``, ``2 days, 1:02:03``, ``41s``, ``1h 2m``, ``41``."""
    days, clock = 0.0, text
    if ":" in text:
        before, _, after = text.rpartition("d")
        if before:
            days, clock = float(before), after.lstrip("ays, ")
        seconds = 0.0
        for part in clock.split(":"):
            seconds = seconds * 60 + float(part)
        return days * 86400 + seconds
    found = _PARTS.findall(text)
    if not found:
        return float(text)
    return sum(float(value) * _SECONDS[letter] for value, letter in found)
