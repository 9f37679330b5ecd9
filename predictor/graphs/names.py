"""Names as people write them -> entry of the catalog: by alias, by spelling and by pattern.

A name is looked up whole, without its library or organisation, and without tags that leave the
network as it is (``-instruct``, ``.a1_in1k``), most exact first. What could mean two networks means
none.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from heapq import nlargest
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from profiles.errors import ProfileDataError
from profiles.storage import HERE
from profiles.tables import models

FILE = "names.yaml"  # how names in the wild are written, beside the aliases of entries
MAX_NAME = 192
_MAX_TAGS = 5
_SEPARATORS = re.compile(r"[\s_,()\[\]-]+")
_WORD = re.compile(r"\d+(?:\.\d+)*|[^\d-]+", re.ASCII)
_FILE = re.compile(r"\.(py|ya?ml|json|pth?|ckpt|safetensors)$")
# Where Hugging Face keeps what it loaded; ModelScope writes a dot as ___.
_CACHED = re.compile(
    r"^(?:.*/)?models--(?:(?:(?!--|/).)+--)?(?=[^/]+/snapshots/)|/snapshots/[^/]+/?$"
)
_SIZE = re.compile(r"(.+?)-(\d{2,4})(?:x\2)?")
_NEAREST_OF, _COMPARED = 40, 24
_CUTOFF = 0.5
_TELLING = 4  # letters from which on a part of a name tells which it is


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What a name means: an entry, and where it is a variant of one, ``name`` and the changes.

    ``architecture`` are the changed arguments of the builder as text, ``image_size`` the pixels of
    a side, None for the entry's own.
    """

    entry: str
    name: str
    architecture: tuple[tuple[str, str], ...] = ()
    image_size: int | None = None


@lru_cache(maxsize=4096)
def meaning_of(name: str, library: str = "") -> Meaning | None:
    """What a name means, or None; ``library`` (``torchvision:``) is looked in first."""
    if len(name) > MAX_NAME:
        return None
    for spelling in _spellings(name, library):
        if spelling not in _known() and _refused(spelling):
            return None
        if found := _lookup(spelling):
            return found
    return None


def why_refused(name: str, library: str = "") -> str:
    """Why a name means no network of the catalog, where that is known; else an empty text."""
    refused = filter(None, map(_refused, _spellings(name[:MAX_NAME], library)))
    return next((refusal.reason for refusal in refused), "")


@lru_cache(maxsize=1024)
def nearest(name: str) -> tuple[str, ...]:
    """At most three entries whose names or aliases look like ``name``.

    Only those that share most pairs of letters are compared: scripts are read in milliseconds.
    """
    known = _known()
    key = normal(name[:MAX_NAME]).rpartition("/")[2][:_NEAREST_OF]
    shared = Counter(one for pair in _pairs(key) for one in _by_pairs().get(pair, ()))
    like = nlargest(_COMPARED, shared, lambda one: shared[one] / (len(key) + len(one)))
    close = difflib.get_close_matches(key, like, n=6, cutoff=_CUTOFF)
    inside = sorted((n for n in known if key in n and len(key) >= _TELLING), key=len)
    return tuple(dict.fromkeys(known[c] for c in (*inside, *close)))[:3]


def _pairs(name: str) -> Iterable[str]:
    return dict.fromkeys(map("".join, pairwise(name)))  # in the same order in every process


@cache
def _by_pairs() -> Mapping[str, list[str]]:
    """The known names by the pairs of letters in them."""
    found = defaultdict[str, list[str]](list)
    for name in _known():
        for pair in _pairs(name):
            found[pair].append(name)
    return dict(found)


def normal(name: str) -> str:
    """Lower case, with one ``-`` for blanks, ``_``, commas and brackets."""
    return _SEPARATORS.sub("-", name.strip().lower()).strip("-")


def _spellings(name: str, library: str) -> Iterator[str]:
    """Ways to read one name, most exact first: as written, then without tags.

    Each in its library, whole, and without library, organisation or folders.
    """
    key = _FILE.sub("", normal(_CACHED.sub("", name).replace("___", ".")).rstrip("/"))
    found = [library + key, key] if library else [key]
    for prefix, written in naming().libraries.items():
        if start := written.match(key):
            rest = key[start.end() :]
            found += [prefix + rest, rest]
    found += [key.rpartition(":")[2], key.rpartition("/")[2]]
    forms = tuple(dict.fromkeys(found))
    yield from forms
    for _ in range(_MAX_TAGS):
        shorter = tuple(naming().tags.sub("", form) for form in forms)
        if shorter == forms:
            return
        yield from shorter
        forms = shorter


def _lookup(spelling: str) -> Meaning | None:
    if entry := _known().get(spelling):
        return Meaning(entry=entry, name=entry)
    for pattern in naming().patterns:
        if (match := pattern.match.fullmatch(spelling)) and (found := _meant(pattern, match)):
            return found
    entry = _by_words().get(_words(spelling)) or _of_own_size(spelling)
    return Meaning(entry=entry, name=entry) if entry else None


def _meant(pattern: Pattern, match: re.Match[str]) -> Meaning | None:
    entry = _known().get(normal(match.expand(pattern.entry)))
    if entry is None:
        return None
    changes = tuple(sorted((k, match.expand(v)) for k, v in pattern.architecture.items()))
    side = int(match.expand(pattern.image_size)) if pattern.image_size else None
    name = match.string if changes or side else entry
    return Meaning(entry=entry, name=name, architecture=changes, image_size=side)


def _of_own_size(spelling: str) -> str | None:
    """``swin-tiny-224`` where images of 224 pixels are what the entry has anyway."""
    match = _SIZE.fullmatch(spelling)
    entry = match and (_known().get(match[1]) or _by_words().get(_words(match[1])))
    if not match or not entry:
        return None
    size = models()[entry].get("defaults", {}).get("image_size") or ()
    return entry if set(size) == {int(match[2])} else None


@lru_cache(maxsize=4096)
def _refused(spelling: str) -> Refusal | None:
    return next((r for r in naming().refusals if r.match.fullmatch(spelling)), None)


def _words(spelling: str) -> str:
    """A name without its separators, so that ``llama-2-7b`` and ``llama2-7b`` are one.

    Numbers stay whole and apart: ``1.3b`` and ``13b`` differ, and so do ``3-5b`` and ``35b``.
    """
    found: list[str] = []
    for word in _WORD.findall(spelling):
        both_numbers = found and found[-1][-1].isdigit() and word[0].isdigit()
        found += ["-", word] if both_numbers else [word]
    return "".join(found)


@cache
def _known() -> Mapping[str, str]:
    """Every name and alias in normal spelling -> name of its entry; names before aliases."""
    aliases = {normal(a): name for name, e in models().items() for a in e.get("aliases", ())}
    return aliases | {normal(name): name for name in models()}


@cache
def _by_words() -> Mapping[str, str]:
    """Words of every name and alias, with and without its organisation; only what is unique."""
    found: dict[str, set[str]] = {}
    for spelling, name in _known().items():
        for form in {spelling, spelling.rpartition("/")[2]}:
            if not form.isdecimal():
                found.setdefault(_words(form), set()).add(name)
    return {words: min(names) for words, names in found.items() if len(names) == 1}
