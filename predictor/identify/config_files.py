"""The configuration files that a command names, and what is told of those that are not read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .autocast import SIGNALS
from .draft import Draft
from .flags import FlagFamily, flag_of, flags
from .keys import OFF, ON, key_of
from .launch import Launch, said

MAX_FILES = 3
_PYTHON_CONFIG = re.compile(r"(?:.*/)?configs?/.+\.py", re.ASCII)
# Flags of Hydra, which together name one file.
_PATHS = frozenset(("--config-path", "--config-dir", "-cp", "-cd"))
_NAMES = frozenset(("--config-name", "-cn"))
_PATHS_WITHOUT = ("conf", "config", "configs")


@dataclass(frozen=True, slots=True)
class Named:
    """A file that a command names: by ``flag``, empty where it stands alone.

    ``paths`` are where it may be, the first that is there counts. What an ``agreed`` one says of
    the time of the job the flags must say too, or its name does.
    """

    flag: str
    paths: tuple[str, ...]
    shown: str
    agreed: bool = False


def named_files(launch: Launch, family: FlagFamily) -> list[Named]:
    """The files that flags and arguments name."""
    return list(dict.fromkeys((*_of_flags(launch, family), *_of_arguments(launch, family))))


def launcher_file(launch: Launch) -> str | None:
    """The file of a launcher such as ``accelerate launch --config_file``."""
    for name, value, following in said(launch.before):
        if flag_of(name) in flags().launcher_files:
            return value if value is not None else next(iter(following), "")
    return None


def tell_files(unread: Sequence[Named], *, launcher_unread: bool, draft: Draft) -> None:
    """Add a problem where files may say what the time of the job follows from."""
    if unread:
        names = list(dict.fromkeys(one.shown for one in unread))[:MAX_FILES]
        shown = "".join(c if c.isprintable() else "?" for c in ", ".join(names))
        needed = "model, precision, batch_size, and epochs or steps"
        draft.problem(f"{shown} is not read: state {needed} in --comment", "file")
    if launcher_unread and not {"precision", *SIGNALS} & {*draft.texts, *draft.signals}:
        draft.problem("the launcher's file is not read: state precision in --comment", "precision")


def _of_flags(launch: Launch, family: FlagFamily) -> Iterator[Named]:
    values = [(n, v if v is not None else next(iter(f), "")) for n, v, f in said(launch.after)]
    where = next((text for name, text in values if flag_of(name) in _PATHS), None)
    named = any(flag_of(name) in _NAMES for name, _ in values)
    for name, text in values:
        flag, shown = flag_of(name), f"{name[:40]} {text[:40]}"
        kind = family.values.get(flag)
        named_so = flag in flags().config_flags and is_config(text)
        if kind not in ("file", "agreed", "config") and not named_so:
            continue
        if text.startswith("-") or key_of(text) in ON | OFF:
            continue
        if flag in _NAMES:
            yield Named(flag, _composed(launch, where, text), shown)
        elif not (flag in _PATHS and named):
            yield Named(flag, (text,), shown, kind in ("agreed", "config"))


def _composed(launch: Launch, where: str | None, name: str) -> tuple[str, ...]:
    """Where Hydra looks, beside the program or here."""
    file = name if is_config(name) else f"{name}.yaml"
    folders = _PATHS_WITHOUT if where is None else (where,)
    roots = (f"{launch.directory}/", "") if launch.directory else ("",)
    return tuple(
        f"{'' if f.startswith('/') else root}{f}/{file}" for root in roots for f in folders
    )


def _of_arguments(launch: Launch, family: FlagFamily) -> Iterator[Named]:
    for before, word in zip(("", *launch.after), launch.after, strict=False):
        if word.startswith("-") or "=" in word:
            continue
        if family.configs:
            if word.startswith(family.configs) or f"/{family.configs}" in word:
                yield Named("", (word,), word[-40:], agreed=True)
        elif not before.startswith("-") and (is_config(word) or _PYTHON_CONFIG.fullmatch(word)):
            yield Named("", (word,), word[-40:])


def is_config(word: str) -> bool:
    """Whether a word ends as the name of a configuration does."""
    return word.lower().endswith(flags().config_ends)
