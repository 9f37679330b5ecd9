"""Words people mistype: what they may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST_SHOWN = 14
LIKENESS = 0.55


def key_of(text: str) -> str:
    """The spelling that keys and words are compared in."""
    return text.strip().lower().replace("-", "_")


def nearest(word: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The known words most like ``word``, the likest first; a single letter is like nothing."""
    words = [name for name in known if len(name) > 1]
    return difflib.get_close_matches(word.lower(), words, n=most, cutoff=LIKENESS)


def accepted(word: str, known: Iterable[str]) -> str:
    """What an error says is expected: a few words all, the nearest first, of many the nearest."""
    names = list(dict.fromkeys(known))
    near = nearest(word, names)
    if near and len(names) > MOST_SHOWN:
        return f"nearest are {', '.join(near)}"
    shown = list(dict.fromkeys((*near, *names)))[:MOST_SHOWN]
    return f"expected one of {', '.join(shown)}" + (" ..." if len(names) > MOST_SHOWN else "")
