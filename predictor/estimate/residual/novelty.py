"""How new a job is: which of its keys the fitted measurements already hold."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from .features import EncodedRows
from .kernel import Rows


class Tier(StrEnum):
    """Novelty of a job, from least to most."""

    RUN = "run"
    CONFIGURATION = "configuration"
    TABLE = "table"
    SITE = "site"
    MODEL = "model"

    @property
    def meaning(self) -> str:
        """One clause for people."""
        return _MEANING[self]


_MEANING = {
    Tier.RUN: "this model, framework, GPU and precision was measured at this site",
    Tier.CONFIGURATION: "this model was measured on this GPU at this site, not at this precision",
    Tier.TABLE: "this site was measured, not this model on this GPU and framework",
    Tier.SITE: "this model was measured, but never at this site",
    Tier.MODEL: "this model was never measured",
}
# A job is of the first tier whose every key was seen.
KEYS: dict[Tier, tuple[tuple[str, ...], ...]] = {
    Tier.RUN: (("source", "model", "variant", "task", "framework", "gpu", "precision"),),
    Tier.CONFIGURATION: (("source", "model", "framework", "gpu"),),
    Tier.TABLE: (("source",), ("model",)),
    Tier.SITE: (("model",),),
}
# What is left out together to learn how wrong a prediction of the tier is; RUN uses random folds.
GROUPS: dict[Tier, tuple[str, ...]] = {
    Tier.CONFIGURATION: KEYS[Tier.RUN][0],
    Tier.TABLE: KEYS[Tier.CONFIGURATION][0],
    Tier.SITE: ("source",),
    Tier.MODEL: ("model",),
}


class KnownKeys:
    """The keys of a fitted table."""

    def __init__(self, table: EncodedRows) -> None:
        self._seen = {
            key: frozenset(table.code(key).tolist()) for keys in KEYS.values() for key in keys
        }

    def tiers(self, new: EncodedRows) -> list[Tier]:
        """The tier of each new row."""
        codes = {key: new.code(key) for key in self._seen}
        return [self._tier({k: int(c[i]) for k, c in codes.items()}) for i in range(len(new))]

    def _tier(self, codes: dict[tuple[str, ...], int]) -> Tier:
        for tier, keys in KEYS.items():
            if all(codes[k] >= 0 and codes[k] in self._seen[k] for k in keys):
                return tier
        return Tier.MODEL


def groups(table: EncodedRows, key: Sequence[str]) -> list[Rows]:
    """Row sets that share a key."""
    code = table.code(key)
    order = np.argsort(code, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(code[order])) + 1)


def random_folds(n: int, folds: int, seed: int = 0) -> list[Rows]:
    """A random partition of ``n`` rows."""
    order = np.random.default_rng(seed).permutation(n)
    return [np.sort(part) for part in np.array_split(order, folds)]


def elsewhere(table: EncodedRows, key: Sequence[str], outside: Sequence[str]) -> NDArray[np.bool_]:
    """Rows whose ``key`` also occurs under another value of ``outside``."""
    own, other = table.code(key), table.code(outside)
    pairs = {(int(k), int(o)) for k, o in zip(own, other, strict=True)}
    counts: dict[int, int] = {}
    for k, _ in pairs:
        counts[k] = counts.get(k, 0) + 1
    return np.array([counts[int(k)] > 1 for k in own])
