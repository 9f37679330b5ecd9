"""Site rules: what an admin knows of jobs whose users say nothing.

A YAML file. The first rule whose ``match`` all fits says what the job is, in the keys of the
grammar; named groups of the expressions stand for what they matched::

    rules:
      - name: nightly resnet
        match: {name: "^rn(?P<depth>50|101)-nightly", account: "^vision$"}
        job: {model: "resnet{depth}", precision: amp, epochs: 90, batch: 256}

Expressions are searched, not anchored, in at most 4 KiB of a field and 64 KiB of a script.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from profiles.storage import user_yaml

from ..errors import RulesError
from .draft import Draft
from .stated import Stated

MAX_FIELD = 4096
MAX_SCRIPT = 64 * 1024
_GROUP = re.compile(r"\{([A-Za-z_]\w*)\}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleContext:
    """What rules may look at; empty where a scheduler has none. ``command`` is one text."""

    name: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    command: str = ""
    work_dir: str = ""
    script: str = ""


MATCHED = tuple(f.name for f in fields(RuleContext))


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: expressions that must all be found, and the job they mean."""

    name: str
    match: Mapping[str, re.Pattern[str]]
    job: Mapping[str, str]

    def stated(self, context: RuleContext) -> Stated | None:
        """What the rule says of this job, or None where it does not fit."""
        groups: dict[str, str] = {}
        for name, pattern in self.match.items():
            most = MAX_SCRIPT if name == "script" else MAX_FIELD
            if (found := pattern.search(getattr(context, name)[:most])) is None:
                return None
            groups.update({k: v for k, v in found.groupdict().items() if v is not None})
        draft = Draft(f"rule {self.name}")
        for key, text in self.job.items():
            draft.say(key, _GROUP.sub(lambda group: groups.get(group[1], ""), text))
        return draft.stated()


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a site, in the order of the file."""

    rules: tuple[Rule, ...] = ()

    def match(self, context: RuleContext) -> Stated | None:
        """What the first rule that fits says, or None."""
        return next(filter(None, (rule.stated(context) for rule in self.rules)), None)


def read_rules(path: Path) -> Rules:
    """The rules of a file; raises RulesError naming file, rule, field and what is expected."""
    raw = user_yaml(path, RulesError)
    if raw is None:
        return Rules()
    if not isinstance(raw, dict) or set(raw) != {"rules"} or not isinstance(raw["rules"], list):
        raise RulesError(f"{path}: expected a mapping with the one key `rules`, a list")
    rules = tuple(_rule(f"{path}: rule {i}", entry) for i, entry in enumerate(raw["rules"], 1))
    names = [rule.name for rule in rules]
    for i, name in enumerate(names, 1):
        if name in names[: i - 1]:
            raise RulesError(f"{path}: rule {i}: name={name!r} is that of another rule")
    return Rules(rules)


def _rule(where: str, raw: Any) -> Rule:
    if not isinstance(raw, dict) or set(raw) != {"name", "match", "job"}:
        raise RulesError(f"{where}: expected name, match and job, all of them")
    name = raw["name"]
    if not isinstance(name, str) or not name.strip():
        raise RulesError(f"{where}: invalid name={name!r}; expected a text")
    where = f"{where} ({name})"
    for part in ("match", "job"):
        pairs = raw[part]
        if not isinstance(pairs, dict) or not pairs or not all(isinstance(k, str) for k in pairs):
            raise RulesError(f"{where}: invalid {part}={pairs!r}; expected `key: value` pairs")
    match = {key: _pattern(where, key, text) for key, text in raw["match"].items()}
    groups = {group for pattern in match.values() for group in pattern.groupindex}
    job = {key: _text(text) for key, text in raw["job"].items()}
    draft = Draft(where)  # values without groups are read now: a slip shows when the file does
    for key, text in job.items():
        used = set(_GROUP.findall(text))
        if lacking := ", ".join(sorted(used - groups)):
            raise RulesError(f"{where}: invalid job.{key}={text!r}; match has no group {lacking}")
        if not (Draft(where) if used else draft).say(key, text):
            raise RulesError(f"{where}: job.{key} is not a key of the grammar")
    for problem in draft.stated().problems:
        raise RulesError(f"{where}: job: {problem.text}")
    return Rule(name.strip(), match, job)


def _pattern(where: str, key: str, text: Any) -> re.Pattern[str]:
    if key not in MATCHED:
        raise RulesError(f"{where}: invalid match.{key}; expected one of {', '.join(MATCHED)}")
    if not isinstance(text, str):
        raise RulesError(f"{where}: invalid match.{key}={text!r}; quote the expression")
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise RulesError(f"{where}: match.{key}={text!r} is no expression: {error}") from None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, dict):
        return ";".join(f"{k}={_text(v)}" for k, v in value.items())
    return str(value)
