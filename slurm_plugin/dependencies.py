"""Slurm's text of what a job depends on: ``afterok:12(unfulfilled),after:9_*+5(unfulfilled)``."""

from __future__ import annotations

import re
from dataclasses import dataclass

MINUTE_S = 60.0
_ONE = re.compile(
    r"(?P<kind>\w+)(?::(?P<job>\d+)(?:_(?P<task>\d+|\*))?(?:\+(?P<minutes>\d+))?)?(?:\((?P<state>\w+)\))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """One condition; ``kind`` is Slurm's word, ``task`` a number, ``*`` for all, or None."""

    kind: str
    job: str = ""
    task: str | None = None
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """All of them; where ``any_of`` is set one is enough."""

    every: tuple[Dependency, ...] = ()
    any_of: bool = False


def parse(text: str) -> Dependencies:
    """The conditions of a text as ``squeue`` prints it; none of an empty one.

    Of those of which one is enough, ones that have failed are skipped.
    """
    any_of = "?" in text
    found = (_ONE.fullmatch(part) for part in re.split("[,?]", text) if part)
    return Dependencies(
        any_of=any_of,
        every=tuple(
            _dependency(match)
            for match in found
            if match and not (any_of and match["state"] == "failed")
        ),
    )


def _dependency(match: re.Match[str]) -> Dependency:
    return Dependency(
        kind=match["kind"],
        job=match["job"] or "",
        task=match["task"],
        delay_s=MINUTE_S * int(match["minutes"] or 0),
    )
