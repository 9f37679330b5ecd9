"""What `check` says: one line a promise, and what to do where it is not kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import click


@dataclass(frozen=True, slots=True)
class Promise:
    """One thing that must hold; ``remedy`` is what to do where it does not, None where it does."""

    text: str
    remedy: str | None = None

    @property
    def kept(self) -> bool:
        """True where it holds."""
        return self.remedy is None


def promise(text: str, holds: bool, remedy: str) -> Promise:
    """A promise that is kept where ``holds``."""
    return Promise(text, None if holds else remedy)


def say(promises: Iterable[Promise]) -> bool:
    """Print each promise; True where all of them are kept."""
    all_kept = True
    for each in promises:
        all_kept &= each.kept
        click.echo(f"ok      {each.text}" if each.kept else f"FAILED  {each.text}: {each.remedy}")
    return all_kept
