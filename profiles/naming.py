"""Loader of ``names.yaml``: how names in the wild are written, beside the aliases of entries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from .errors import ProfileDataError
from .storage import HERE

FILE = "names.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Names of one form; the other fields may refer to the groups of ``match``."""

    match: re.Pattern[str]
    entry: str
    architecture: Mapping[str, str]
    image_size: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Names that mean no network of the catalog, and why."""

    match: re.Pattern[str]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """Everything ``names.yaml`` says; each regular expression matches a lower-case name whole.

    ``libraries`` maps the catalog's prefix of a library to what people write for it; ``tags``
    matches the ends of a name that leave the network as it is.
    """

    libraries: Mapping[str, re.Pattern[str]]
    tags: re.Pattern[str]
    patterns: tuple[Pattern, ...]
    refusals: tuple[Refusal, ...]


@cache
def naming(root: Path = HERE) -> Naming:
    """The rules of names; raises ProfileDataError where one is malformed."""
    raw = yaml.load((root / FILE).read_bytes(), yaml.CSafeLoader) or {}
    try:
        return Naming(
            libraries={prefix: re.compile(text) for prefix, text in raw["libraries"].items()},
            tags=re.compile(f"(?:{'|'.join(raw['tags'])})$"),
            patterns=tuple(_pattern(item) for item in raw["patterns"]),
            refusals=tuple(
                Refusal(match=re.compile(r["match"]), reason=r["reason"]) for r in raw["refusals"]
            ),
        )
    except (KeyError, TypeError, AttributeError, re.error) as error:
        raise ProfileDataError(f"{FILE}: {type(error).__name__}: {error}") from error


def _pattern(item: Mapping[str, Any]) -> Pattern:
    changes = item.get("architecture", {})
    return Pattern(
        match=re.compile(item["match"]),
        entry=item["entry"],
        architecture={key: str(value) for key, value in changes.items()},
        image_size=str(item.get("image_size", "")),
    )
