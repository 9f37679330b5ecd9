"""The configuration files that a command names: what they say is not known, and is told."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .autocast import SIGNALS
from .draft import Draft
from .flags import Family, flag_of, flags
from .keys import OFF, ON, key_of
from .launch import Launch, said

MAX_FILES = 3
_PYTHON_CONFIG = re.compile(r"(?:.*/)?configs?/.+\.py", re.ASCII)


def tell_files(launch: Launch, family: Family, draft: Draft) -> None:
    """Add a problem where files may say what the time of the job follows from.

    Only the program sees these files: the user may not be the one who reads the command, and a
    path may lead anywhere.
    """
    named = dict.fromkeys([*_of_flags(launch, family), *_of_arguments(launch, family)])
    if named:
        shown = "".join(c if c.isprintable() else "?" for c in ", ".join(list(named)[:MAX_FILES]))
        needed = "model, precision, batch_size, and epochs or steps"
        draft.problem(f"{shown} is not read: state {needed} in --comment", "file")
    if not {"precision", *SIGNALS} & {*draft.texts, *draft.signals} and _launcher_file(launch):
        draft.problem("the launcher's file is not read: state precision in --comment", "precision")


def _of_flags(launch: Launch, family: Family) -> Iterator[str]:
    for name, value, following in said(launch.after):
        text = value if value is not None else next(iter(following), "")
        is_file = family.values.get(flag_of(name)) == "file" and key_of(text) not in ON | OFF
        if (is_file and not text.startswith("-")) or (name == "-c" and _looks_like_one(text)):
            yield f"{name[:40]} {text[:40]}"


def _of_arguments(launch: Launch, family: Family) -> Iterator[str]:
    if family.configs:
        return
    for before, word in zip(("", *launch.after), launch.after, strict=False):
        plain = not word.startswith("-") and "=" not in word and not before.startswith("-")
        if plain and (_looks_like_one(word) or _PYTHON_CONFIG.fullmatch(word)):
            yield word[-40:]


def _looks_like_one(word: str) -> bool:
    return word.lower().endswith(flags().config_ends)


def _launcher_file(launch: Launch) -> bool:
    return any(flag_of(name) in flags().launcher_files for name, _, _ in said(launch.before))
