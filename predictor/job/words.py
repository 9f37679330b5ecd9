"""Words people mistype: what they may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST_SHOWN = 12
LIKENESS = 0.55


def nearest(word: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The known words most like ``word``, the likest first."""
    return difflib.get_close_matches(word.lower(), list(known), n=most, cutoff=LIKENESS)


def accepted(word: str, known: Iterable[str]) -> str:
    """What an error says is accepted: the nearest words, else the known ones."""
    names = list(dict.fromkeys(known))
    if near := nearest(word, names):
        return f"nearest are {', '.join(near)}"
    shown = ", ".join(names[:MOST_SHOWN])
    return f"accepted are {shown}" + (" ..." if len(names) > MOST_SHOWN else "")
