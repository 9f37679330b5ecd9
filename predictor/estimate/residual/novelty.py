"""How new a job is, and how much of a novel job's estimate is plain physics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from profiles.storage import shipped_yaml

from .features import MANY, EncodedRows
from .kernel import Floats, Rows


class Tier(StrEnum):
    """Novelty of a job, from least to most."""

    RUN = "run"
    CONFIGURATION = "configuration"
    COUNT = "count"
    TABLE = "table"
    SITE = "site"
    MODEL = "model"

    @property
    def meaning(self) -> str:
        """One clause for people."""
        return TIERS[self]["means"]


TIERS: Mapping[str, Mapping[str, str]] = shipped_yaml("tiers.yaml", __file__)
# One GPU says less of several than one count of several does of another.
SAME_COUNT = ("source", "model", MANY)
# A job is of the first tier whose every key was seen.
KEYS: dict[Tier, tuple[tuple[str, ...], ...]] = {
    Tier.RUN: (("source", "model", "variant", "task", "framework", "gpu", "precision"), SAME_COUNT),
    Tier.CONFIGURATION: (("source", "model", "framework", "gpu"), SAME_COUNT),
    Tier.COUNT: (("source", "model", "framework", "gpu"),),
    Tier.TABLE: (("source",), ("model",)),
    Tier.SITE: (("model",),),
}
# What is left out together to learn how wrong a prediction of the tier is; RUN uses random folds.
GROUPS: dict[Tier, tuple[str, ...]] = {
    Tier.CONFIGURATION: KEYS[Tier.RUN][0],
    Tier.COUNT: ("model", MANY),
    Tier.TABLE: KEYS[Tier.CONFIGURATION][0],
    Tier.SITE: ("source",),
    Tier.MODEL: ("model",),
}


class KnownKeys:
    """The keys of a fitted table."""

    def __init__(self, table: EncodedRows) -> None:
        self._seen = {key: frozenset(_values(table, key)) for keys in KEYS.values() for key in keys}

    def tiers(self, new: EncodedRows) -> list[Tier]:
        """The tier of each new row; a value never seen is in no fitted key."""
        found = {
            key: [own in seen for own in _values(new, key)] for key, seen in self._seen.items()
        }
        return [
            next((t for t, keys in KEYS.items() if all(found[k][i] for k in keys)), Tier.MODEL)
            for i in range(len(new))
        ]


def _values(table: EncodedRows, key: Sequence[str]) -> Iterator[tuple[int, ...]]:
    return zip(*(table.column(name).tolist() for name in key), strict=True)


def groups(table: EncodedRows, key: Sequence[str]) -> list[Rows]:
    """Row sets that share a key."""
    code = table.code(key)
    order = np.argsort(code, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(code[order])) + 1)


def alike(table: EncodedRows, name: str) -> Floats:
    """What each row counts for where each value of a column counts alike, (n,)."""
    value = table.column(name)
    return np.asarray(1 / np.bincount(value)[value])


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


# A source with fewer models has no share of its own.
MODELS_OF_A_SOURCE = 5
SHARES = tuple(tenths / 10 for tenths in range(11))


@dataclass(frozen=True, slots=True)
class PhysicsShare:
    """The share of plain physics: that of a job's source, else that of all.

    Where one script runs every network, a new one behaves like the others; where each network has
    code of its own, physics is the better guess. Which it is, held-out models of the source tell.
    So it is with the way from one GPU to several.
    """

    pooled: float = 0.0
    by_source: Mapping[int, float] = field(default_factory=dict)

    def mix(self, process: Floats, physics: float | Floats, sources: NDArray[np.int32]) -> Floats:
        """The log residual of each row; ``physics`` is what plain physics says of it.

        ``sources`` are codes of the vocabulary.
        """
        shares = np.array([self.by_source.get(code, self.pooled) for code in sources.tolist()])
        return process + shares * (physics - process)


class ShareCosts:
    """What each share costs on held-out rows, in mean percentage error.

    ``process`` (n,) are predictions of rows whose group was held out, NaN where there is none.
    Each model of a source counts as the root of its rows, so that none decides alone.
    """

    def __init__(
        self, process: Floats, physics: float | Floats, targets: Floats, table: EncodedRows
    ) -> None:
        self._mixed = np.array([process + share * (physics - process) for share in SHARES])
        self._usable = np.isfinite(process)
        self._source, self._model = table.column("source"), table.column("model")
        _, member, size = np.unique(
            table.code(("source", "model")), return_inverse=True, return_counts=True
        )
        loss = np.abs(np.expm1(self._mixed - targets)) / np.sqrt(size[member])
        self._loss = np.where(self._usable, loss, 0.0)

    def best(self) -> PhysicsShare:
        """The cheapest share over all rows, and for each source."""
        return PhysicsShare(
            SHARES[self._cheapest(self._usable)],
            {code: SHARES[self._cheapest(self._source == code)] for code in self._sources()},
        )

    def predictions(self, group: NDArray[np.int32]) -> Floats:
        """Held-out predictions; no row of a ``group`` (n,) takes part in choosing its share."""
        own = set(self._sources())
        blended: Floats = self._mixed[0].copy()
        for held_out in np.unique(group[self._usable]):
            mine = group == held_out
            pooled = self._cheapest(~mine)
            for code in np.unique(self._source[mine]):
                rows = mine & (self._source == code)
                inside = (self._source == code) & ~mine
                choice = self._cheapest(inside) if int(code) in own else pooled
                blended[rows] = self._mixed[choice][rows]
        return blended

    def _sources(self) -> list[int]:
        """Sources with enough models for a share of their own."""
        return [
            int(code)
            for code in np.unique(self._source[self._usable])
            if len(np.unique(self._model[self._usable & (self._source == code)]))
            >= MODELS_OF_A_SOURCE
        ]

    def _cheapest(self, rows: NDArray[np.bool_]) -> int:
        return int(np.argmin(self._loss[:, rows].sum(axis=1)))
