"""The grammar of comments, annotations and environments: ``model=resnet50 precision=amp``.

Pairs ``key=value`` stand between blanks, commas or semicolons; a value with one of those in it is
quoted (``options="xla=on;channels_last=on"``), but a comma between digits is part of the number.
Words without ``=`` are free text. Case does not matter in keys, and ``-`` is as good as ``_``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..job.phases import PHASE_FIELDS, Phase
from ..job.words import key_of
from .draft import Draft, slips
from .keys import ALIASES, FIELD_OF
from .stated import Stated

MAX_TEXT = 8192
MAX_MAPPED = 256
TEXT_VARIABLE = "PRECISION_TIME"
VARIABLE_PREFIX = "PRECISION_TIME_"
ANNOTATION_PREFIX = "precision-time.io/"
TEXT_ANNOTATION = "precision-time.io/job"
_PAIR = re.compile(
    r"""(?<![^\s,;("'])([A-Za-z][\w.-]{0,63}+)[ \t]{0,8}+=
        (?:[ \t]{1,8}+(?![\w.-]{1,64}+[ \t]{0,8}+=))?
        (?:"([^"]*+)"|'([^']*+)'|((?:[^\s,;"'()]|(?<=\d),(?=\d))*))""",
    re.VERBOSE | re.ASCII,
)
_PLAIN = re.compile(r"[^\s,;\"'=()]+")


def parse_text(text: str, origin: str, *, ours: bool = False) -> Stated:
    """What a text says; unknown keys may be another's but in one of ``ours``, or beside ours."""
    draft = Draft(origin, ours=ours)
    for key, value in pairs_of(text):
        draft.say(key, value)
    return draft.stated()


def parse_mapping(mapping: Mapping[str, str], origin: str) -> Stated:
    """What environment variables or annotations say.

    ``PRECISION_TIME_BATCH_SIZE`` and ``precision-time.io/batch-size`` are the key ``batch_size``;
    ``PRECISION_TIME`` and ``precision-time.io/job`` hold a whole text, which single keys refine.
    """
    draft, text = Draft(origin, ours=True), Stated()
    for name, value in list(mapping.items())[:MAX_MAPPED]:
        prefix = next(filter(name.startswith, (VARIABLE_PREFIX, ANNOTATION_PREFIX)), None)
        if name in (TEXT_VARIABLE, TEXT_ANNOTATION):
            text = parse_text(value, origin, ours=True)
        elif prefix and spoken(key := name.removeprefix(prefix)):
            draft.say(key_of(key), value[:MAX_TEXT])
    return draft.stated().over(text)


def spoken(name: str) -> bool:
    """Whether `parse_mapping` reads, or tells of, what stands behind a prefix of ours."""
    key = key_of(name)
    return key in FIELD_OF or bool(slips(key))


def pairs_of(text: str) -> list[tuple[str, str]]:
    """The ``key=value`` pairs of a text, in its order."""
    return [
        (match[1], next(part for part in (*match.groups()[1:], "") if part is not None))
        for match in _PAIR.finditer(text[:MAX_TEXT])
    ]


def stated_text(stated: Stated) -> str:
    """The values as a text that reads back as them, such as AdminComment keeps."""
    implied = {"trainer": stated.trainer} if stated.trainer else {}
    values = {**implied, **({"gpus": 1} if stated.alone else {}), **stated.values}
    texts = {name: value_text(values[name]) for name in ALIASES if name in values}
    return " ".join(
        f"{k}={text}" if _PLAIN.fullmatch(text) else f'{k}="{text}"' for k, text in texts.items()
    )


def value_text(value: Any) -> str:
    """One value as the grammar writes it, without quotes."""
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, tuple) and value and isinstance(value[0], int):
        return "x".join(map(str, value))
    if isinstance(value, Phase):
        stated = ((name, getattr(value, name)) for name in PHASE_FIELDS)
        return ",".join(f"{k}={value_text(one)}" for k, one in stated if one is not None)
    if isinstance(value, tuple):
        return ";".join(value_text(v) if isinstance(v, Phase) else "=".join(v) for v in value)
    return str(value)
