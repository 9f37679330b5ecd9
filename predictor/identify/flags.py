"""The flags of training programs: ``profiles/flags.yaml`` as frozen dataclasses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from profiles.storage import shipped_yaml

from .grammar import pairs_of

_ONE_DASH = re.compile(r"-[A-Za-z][A-Za-z_-]{2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class FlagFamily:
    """How one family of programs names what we ask; flags as ``flag_of`` spells them.

    ``switches`` map a flag to key and text of the grammar. ``only`` names the programs that
    the evidence holds for, ``least`` how much of it is needed; ``models`` the network a program
    trains; ``prefers`` the length that counts where two are given; ``configs`` the start of paths
    that are configurations. One that ``spreads`` uses every GPU it sees, without a launcher.
    """

    name: str
    source: str
    values: Mapping[str, str]
    switches: Mapping[str, tuple[str, str]]
    programs: frozenset[str] = frozenset()
    evidence: frozenset[str] = frozenset()
    only: frozenset[str] = frozenset()
    framework: str = ""
    prefix: str = ""
    prefers: str = ""
    spreads: bool = False
    least: int = 1
    configs: str = ""
    models: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Flags:
    """The whole file; ``families`` in the order they are tried, each with the generic flags."""

    families: tuple[FlagFamily, ...]
    generic: FlagFamily
    launchers: frozenset[str]
    launching_modules: frozenset[str]
    launching_files: frozenset[str]
    programs: frozenset[str]
    other_work: frozenset[str]
    other_work_flags: frozenset[str]
    training_words: frozenset[str]
    launcher_values: Mapping[str, str]
    launcher_trainers: Mapping[str, str]
    launcher_files: frozenset[str]
    config_ends: frozenset[str]
    config_flags: frozenset[str]
    data_directories: frozenset[str]
    words: Mapping[str, Mapping[str, str]]
    spreading: frozenset[str]
    spreading_flags: frozenset[str]
    sections: frozenset[str]
    named_sections: Mapping[str, str]
    deepspeed: Mapping[str, str]
    accelerate: Mapping[str, str]


def flag_of(word: str) -> str:
    """The spelling flags are compared in; dotted keys are without dashes and ``+``.

    A word behind one dash is one behind two.
    """
    if _ONE_DASH.match(word):
        word = f"-{word}"
    if word.startswith("-") and not word.startswith("--") and len(word) == 2:
        return word
    flag = word.lower().replace("_", "-")
    return flag.lstrip("-+~") if "." in flag or word[:1] in "+~" else flag


@cache
def flags() -> Flags:
    """The table of the package."""
    raw = dict(shipped_yaml("flags.yaml"))
    generic = _family({"name": "generic", **raw.pop("generic")}, None)
    families = tuple(_family(entry, generic) for entry in raw.pop("families"))
    return Flags(families=families, generic=generic, **_sets(raw))


def _family(raw: Mapping[str, Any], generic: FlagFamily | None) -> FlagFamily:
    values = {flag_of(flag): key for flag, key in raw["values"].items()}
    switches = {flag_of(flag): pairs_of(text)[0] for flag, text in raw.get("switches", {}).items()}
    if generic is not None:
        values = {k: v for k, v in generic.values.items() if k not in switches} | values
        switches = {k: v for k, v in generic.switches.items() if k not in values} | switches
    evidence = frozenset(map(flag_of, raw.get("evidence", ())))
    return FlagFamily(**_sets(raw) | {"values": values, "switches": switches, "evidence": evidence})


def _sets(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a mapping, its lists as sets."""
    return {name: frozenset(v) if isinstance(v, list) else v for name, v in raw.items()}
