"""Optimizers by the names people call them, and what their step costs: ``optimizers.yaml``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from profiles.storage import shipped_yaml

from ..errors import JobError
from .words import accepted

TRACED = "@"  # in the name of a traced network: the optimizer it was traced with


@dataclass(frozen=True, slots=True)
class OptimizerRule:
    """Memory traffic and launches of an optimizer step, and what stays between steps, FP32."""

    bytes_per_parameter: float
    state_bytes_per_parameter: float
    launches_per_tensor: float


@cache
def optimizer_rules() -> Mapping[str, OptimizerRule]:
    """Every rule under its name."""
    return {
        name: OptimizerRule(**{k: v for k, v in entry.items() if k != "also"})
        for name, entry in shipped_yaml("optimizers.yaml").items()
    }


def optimizer_named(text: str) -> str:
    """The rule that a name means; raises JobError with the nearest names."""
    if TRACED in text:
        return text
    name = _normal(text)
    if name not in _spelled():
        raise JobError("optimizer", text, accepted(name, _spelled()))
    return _spelled()[name]


@cache
def _spelled() -> Mapping[str, str]:
    return {
        _normal(spelling): name
        for name, entry in shipped_yaml("optimizers.yaml").items()
        for spelling in (name, *entry.get("also", ()))
    }


def _normal(text: str) -> str:
    return re.sub(r"[-_ /]", "", text.strip().rpartition(".")[2].lower())
