"""Catalog names from what people call their models; never a guess at another size."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache

from ..errors import UnknownModelError
from ..graphs.catalog import entries, normal

MAX_NAME = 128
# Ends of names that change weights or vocabulary, not the size of the network: Hugging Face
# repositories, and timm's tags of pretrained weights (``resnet50.a1_in1k``).
_TAG = re.compile(r"\.[a-z][a-z0-9-]*$", re.ASCII)
_SUFFIX = re.compile(
    r"-(hf|uncased|cased|instruct|chat|pretrained|v0\.\d|in1k|in21k|in22k|imagenet|\d{1,2}x|coco)$"
)
_MAX_SUFFIXES = 4
_WORD = re.compile(r"[a-z]+|\d+(?:\.\d+)*|[^a-z\d\s/_-]", re.ASCII)
_NEAREST_OF = 40
_CUTOFF = 0.55


@lru_cache(maxsize=4096)
def resolve_model(name: str, prefix: str = "") -> str:
    """The canonical name of a model; ``prefix`` (``torchvision:``) is tried first.

    Takes catalog names and aliases, Hugging Face repositories, timm and torchvision names and
    paths that end in one. Raises UnknownModelError with the nearest names.
    """
    if len(name) <= MAX_NAME:
        index = _index()
        for spelling in _spellings(name, prefix):
            if found := index.get(_words(spelling)):
                return found
    shown = name if len(name) <= MAX_NAME else name[:_NEAREST_OF] + "..."
    raise UnknownModelError(shown, _nearest(shown))


def _spellings(name: str, prefix: str) -> Iterator[str]:
    key = normal(name).rstrip("/")
    if prefix:
        yield prefix + key
    last = key.rpartition("/")[2]
    yield from (key, key.partition(":")[2], last)
    for end in (_TAG, *(_SUFFIX,) * _MAX_SUFFIXES):
        shorter = end.sub("", last)
        if shorter != last:
            last = shorter
            yield last


def _words(name: str) -> str:
    """The words of a name, so that ``llama-2-7b`` and ``llama2-7b`` are one.

    Numbers stay whole: ``1.3b`` and ``13b`` differ.
    """
    return " ".join(_WORD.findall(name.lower()))


@cache
def _index() -> Mapping[str, str]:
    """Words of every spelling -> canonical name; what could mean two models means none."""
    exact: dict[str, str] = {}
    short: dict[str, set[str]] = {}
    for entry in entries():
        for spelling in (entry.name, *entry.aliases):
            exact.setdefault(_words(normal(spelling)), entry.name)
            last = _words(normal(spelling).rpartition("/")[2])
            short.setdefault(last, set()).add(entry.name)
    for entry in entries():
        exact[_words(normal(entry.name))] = entry.name
    single = {words: min(names) for words, names in short.items() if len(names) == 1}
    return {words: name for words, name in (single | exact).items() if words}


@cache
def _known() -> Mapping[str, str]:
    return {
        normal(spelling): entry.name
        for entry in entries()
        for spelling in (*entry.aliases, entry.name)
    }


@lru_cache(maxsize=4096)
def _nearest(name: str) -> tuple[str, ...]:
    known = _known()
    key = normal(name).rpartition("/")[2][:_NEAREST_OF]
    close = difflib.get_close_matches(key, known, n=6, cutoff=_CUTOFF)
    return tuple(dict.fromkeys(known[c] for c in close))[:3]
