"""The words a job may say of its software: ``profiles/software.yaml``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from profiles.storage import shipped_yaml

from ..errors import JobError
from .words import accepted

Pairs = tuple[tuple[str, str], ...]

# What people write for yes and no.
SWITCH = {
    "on": ("true", "yes", "1", "enabled", "enable"),
    "off": ("false", "no", "0", "none", "disabled", "disable"),
}
GIVEN = "given"  # of `sets`: the value as it is stated


@dataclass(frozen=True, slots=True)
class Option:
    """One word of ``options``: what it means, and the values it takes.

    ``values`` maps every accepted spelling to the value it means; None where any whole number
    (``counts``) or any text is accepted. ``sets`` are fields of Software by value.
    """

    key: str
    meaning: str
    values: Mapping[str, str] | None
    counts: bool
    sets: Mapping[str, Mapping[str, Any]]
    given: tuple[str, ...]
    source: str

    def read(self, text: str) -> str:
        """The value a text means; raises JobError with the nearest values."""
        if self.values is not None:
            found = self.values.get(_spelling(text))
            if found is None:
                raise JobError("options", f"{self.key}={text}", accepted(text, self.values))
            return found
        if self.counts and not text.isdigit():
            raise JobError("options", f"{self.key}={text}", "expected a whole number")
        return text

    def fields(self, value: str) -> dict[str, Any]:
        """The fields of Software that a value of this option fixes."""
        amount: Any = int(value) if self.counts else value
        return dict(self.sets.get(value, {})) | dict.fromkeys(self.given, amount)


@cache
def known_options() -> dict[str, Option]:
    """Every option under its name."""
    data = shipped_yaml("software.yaml")
    found = {key: _option(key, entry) for key, entry in data["options"].items()}
    recorded = data["recorded"].items()
    return found | {key: _option(key, {"values": values}) for key, values in recorded}


@cache
def _spelled() -> Mapping[str, Option]:
    entries = shipped_yaml("software.yaml")["options"]
    spellings = {s: k for k, entry in entries.items() for s in entry.get("spellings", ())}
    known = known_options()
    return {s: known[k] for s, k in spellings.items()} | known


def option_of(key: str) -> Option:
    """The option a word means; raises JobError with the nearest words."""
    found = _spelled().get(_spelling(key))
    if found is None:
        raise JobError("options", key, accepted(_spelling(key), _spelled()))
    return found


def read_options(pairs: Pairs) -> Pairs:
    """Options under their names, values in their usual spelling, sorted; raises JobError."""
    found: dict[str, str] = {}
    for key, text in pairs:
        option = option_of(key)
        value = option.read(text)
        if found.setdefault(option.key, value) != value:
            both = f"{option.key}={found[option.key]};{key}={text}"
            raise JobError("options", both, f"expected one value of {option.key}")
    return tuple(sorted(found.items()))


def understood_options(pairs: Pairs) -> tuple[Pairs, tuple[str, ...]]:
    """As ``read_options``, for tables of other people: what is known, and each word that is not."""
    known, unknown = [], []
    for key, text in pairs:
        try:
            known.append((option_of(key).key, option_of(key).read(text)))
        except JobError as error:
            unknown.append(str(error.value))
    return tuple(sorted(dict(known).items())), tuple(unknown)


def _option(key: str, entry: Mapping[str, Any]) -> Option:
    stated, sets = entry["values"], entry.get("sets", {})
    return Option(
        key=key,
        meaning=entry.get("meaning", "as measured runs state it"),
        values=None if stated in ("count", "text") else dict(_values(stated)),
        counts=stated == "count",
        sets={value: fields for value, fields in sets.items() if fields != GIVEN},
        given=tuple(name for name, fields in sets.items() if fields == GIVEN),
        source=entry.get("source", "profiles/measurements"),
    )


def _values(stated: Any) -> Iterator[tuple[str, str]]:
    """Every spelling with the value it means; those of a switch wherever it has on or off."""
    table = dict.fromkeys(SWITCH, ()) if stated == "switch" else stated
    for value in table:
        own = table[value] if isinstance(table, Mapping) else ()
        for spelling in (*own, value):
            for word in (spelling, *SWITCH.get(spelling, ())):
                yield _spelling(word), value


def _spelling(text: str) -> str:
    return text.strip().lower().replace("-", "_")
