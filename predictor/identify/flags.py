"""The flags of training programs: ``flags.yaml`` as frozen dataclasses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from yaml import CSafeLoader

from .grammar import pairs_of

_ONE_DASH = re.compile(r"-[A-Za-z][A-Za-z_-]{2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class FlagFamily:
    """How one family of programs names what we ask; flags as ``flag_of`` spells them.

    ``switches`` map a flag to key and text of the grammar. ``only`` names the programs that
    the evidence holds for; ``models`` the network a program trains; ``prefers`` the length that
    counts where two are given; ``configs`` the start of paths that are configurations. One that
    ``spreads`` uses every GPU it sees, without a launcher.
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
    launcher_files: frozenset[str]
    config_ends: tuple[str, ...]
    config_flags: frozenset[str]
    data_directories: frozenset[str]
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
    path = Path(__file__).parent / "flags.yaml"
    raw = yaml.load(path.read_bytes(), CSafeLoader)
    generic = _family({"name": "generic", **raw["generic"]}, None)
    return Flags(
        families=tuple(_family(entry, generic) for entry in raw["families"]),
        generic=generic,
        launchers=frozenset(raw["launchers"]),
        launching_modules=frozenset(raw["launching_modules"]),
        launching_files=frozenset(raw["launching_files"]),
        programs=frozenset(raw["programs"]),
        other_work=frozenset(raw["other_work"]),
        other_work_flags=frozenset(raw["other_work_flags"]),
        training_words=frozenset(raw["training_words"]),
        launcher_values=raw["launcher_values"],
        launcher_files=frozenset(raw["launcher_files"]),
        config_ends=tuple(raw["config_ends"]),
        config_flags=frozenset(raw["config_flags"]),
        spreading=frozenset(raw["spreading"]),
        spreading_flags=frozenset(raw["spreading_flags"]),
        data_directories=frozenset(raw["data_directories"]),
        sections=frozenset(raw["sections"]),
        named_sections=raw["named_sections"],
        deepspeed=raw["deepspeed"],
        accelerate=raw["accelerate"],
    )


def _family(raw: Mapping[str, Any], generic: FlagFamily | None) -> FlagFamily:
    values = {flag_of(flag): key for flag, key in raw["values"].items()}
    switches = {flag_of(flag): pairs_of(text)[0] for flag, text in raw.get("switches", {}).items()}
    if generic is not None:
        values = {k: v for k, v in generic.values.items() if k not in switches} | values
        switches = {k: v for k, v in generic.switches.items() if k not in values} | switches
    return FlagFamily(
        name=raw["name"],
        source=raw["source"],
        values=values,
        switches=switches,
        programs=frozenset(raw.get("programs", ())),
        evidence=frozenset(map(flag_of, raw.get("evidence", ()))),
        only=frozenset(raw.get("only", ())),
        framework=raw.get("framework", ""),
        prefix=raw.get("prefix", ""),
        spreads=raw.get("spreads", False),
        prefers=raw.get("prefers", ""),
        configs=raw.get("configs", ""),
        models=raw.get("models"),
    )
