"""The shipped tables and those of added directories as one."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np

from . import gpus, roots, storage, tables
from .tables import CollectiveTable, OperatorTable

Table = TypeVar("Table", OperatorTable, CollectiveTable)


def operators() -> OperatorTable:
    """Every operator row of every root; raises ProfileDataError where a file is malformed."""
    return _operators(roots.roots())


def collectives() -> CollectiveTable:
    """Every collective row of every root; raises ProfileDataError where a file is malformed."""
    return _collectives(roots.roots())


def forget() -> None:
    """Read everything again at the next question: an added directory changed."""
    roots.forget()
    gpus.forget()
    for read in (
        storage.sources,
        storage.texts,
        tables.operators,
        tables.collectives,
        _operators,
        _collectives,
    ):
        read.cache_clear()


@cache
def _operators(where: tuple[Path, ...]) -> OperatorTable:
    return _under_one_another([tables.operators(root) for root in where])


@cache
def _collectives(where: tuple[Path, ...]) -> CollectiveTable:
    return _under_one_another([tables.collectives(root) for root in where])


def _under_one_another(parts: list[Table]) -> Table:
    first = parts[0]
    if len(parts) == 1:
        return first
    return type(first)(
        **{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(first)}
    )
