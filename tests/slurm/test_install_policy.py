"""The policy file an installation leaves: complete, and nothing but the defaults."""

from __future__ import annotations

import yaml
from clusters import policy_of
from pydantic import BaseModel

from slurm_plugin.config import SlurmPolicy
from slurm_plugin.install.files import policy as default_policy


def test_the_shipped_policy_is_that_of_an_empty_file() -> None:
    assert policy_of(yaml.safe_load(default_policy())) == SlurmPolicy()


def test_every_field_is_in_the_shipped_policy() -> None:
    assert _names(yaml.safe_load(default_policy()), SlurmPolicy()) == _fields(SlurmPolicy())


def test_off_needs_no_quotes_although_yaml_takes_it_for_false() -> None:
    policy = policy_of(yaml.safe_load("limits: {mode: off}\nwatch: {mode: off, trim: off}\n"))
    assert policy.limits.mode == "off"
    assert policy.watch.mode == "off"
    assert policy.watch.trim is False


def _fields(section: BaseModel, at: str = "") -> set[str]:
    found: set[str] = set()
    for name in type(section).model_fields:
        inner = getattr(section, name)
        found |= _fields(inner, f"{at}{name}.") if isinstance(inner, BaseModel) else {at + name}
    return found


def _names(raw: object, section: BaseModel, at: str = "") -> set[str]:
    assert isinstance(raw, dict)
    found: set[str] = set()
    for name, value in raw.items():
        inner = getattr(section, name)
        nested = isinstance(inner, BaseModel)
        found |= _names(value, inner, f"{at}{name}.") if nested else {at + name}
    return found
