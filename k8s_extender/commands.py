"""What a container runs: its command with the variables that are plain text filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from predictor.identify.launch import shell_text
from predictor.identify.shell import UNKNOWN, Command, read_script

from .plain import items, text

MAX_VARIABLES = 512
MAX_VALUE = 8192
MAX_WORDS = 1000
OURS = "PRECISION_TIME"
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][\w.-]{0,127})\)", re.ASCII)


@dataclass(frozen=True, slots=True)
class StartedCommand:
    """A command: ``words`` as started, ``script`` where they are ``sh -c`` with a text.

    ``environment`` holds variables with a literal value, those meant for us first.
    """

    words: tuple[str, ...]
    script: str
    environment: Mapping[str, str]

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands that the words or the script start."""
        if not self.script:
            return (Command(self.words, False),) if self.words else ()
        return read_script(self.script, self.environment).commands


def ran_by(container: Mapping[str, Any]) -> StartedCommand:
    """What a container starts; an image's own entry point is not known here."""
    environment, hidden = _environment(container)
    given = [*items(container, "command"), *items(container, "args")][:MAX_WORDS]
    words = tuple(_filled(word, environment, hidden) for word in given if isinstance(word, str))
    return StartedCommand(words, shell_text(words) or "", environment)


def scripted(script: str, environment: Mapping[str, str]) -> StartedCommand:
    """A shell text that something else than the container's command starts."""
    return StartedCommand((), script, environment)


def _environment(container: Mapping[str, Any]) -> tuple[dict[str, str], frozenset[str]]:
    """Variables by name, and the names of those whose value stands elsewhere."""
    known: dict[str, str] = {}
    hidden: set[str] = set()
    for variable in items(container, "env")[:MAX_VARIABLES]:
        name, value = text(variable, "name"), text(variable, "value")
        if not name:
            continue
        known.pop(name, None)
        hidden.discard(name)
        if isinstance(variable, Mapping) and variable.get("valueFrom") is not None:
            hidden.add(name)
        else:
            known[name] = _filled(value, known, frozenset(hidden))[:MAX_VALUE]
    known = {name: value for name, value in known.items() if UNKNOWN not in value}
    ordered = sorted(known, key=lambda name: not name.startswith(OURS))
    return {name: known[name] for name in ordered}, frozenset(hidden)


def _filled(word: str, known: Mapping[str, str], hidden: frozenset[str]) -> str:
    """``$(NAME)`` as the kubelet fills it in; ``$$`` is a plain ``$``."""

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        return UNKNOWN if match[1] in hidden else known.get(match[1], match[0])

    return _REFERENCE.sub(value, word)
