"""How much of a novel job's estimate comes from the process, the trees and plain physics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .features import Table
from .kernel import Floats

# A source with fewer models has no shares of its own.
MODELS_OF_A_SOURCE = 5

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of the trees and of plain physics in an estimate; the process has the rest."""

    trees: float = 0.0
    physics: float = 0.0

    def mix(self, process: Floats, trees: Floats, physics: float) -> Floats:
        """The mixed log residual; ``physics`` is the one constant of plain physics."""
        mixed: Floats = (1 - self.trees - self.physics) * process + self.physics * physics
        return mixed + self.trees * trees if self.trees else mixed


GRID = tuple(Shares(a / 10, c / 10) for a in range(11) for c in range(11 - a))


@dataclass(frozen=True, slots=True)
class Blend:
    """How a novel job is estimated: by the shares of its source, else by those of all.

    Where one script runs every network, a new one behaves like the others; where each network has
    code of its own, physics is the better guess. Which it is, held-out models of the source tell.
    """

    pooled: Shares = field(default_factory=Shares)
    by_source: Mapping[int, Shares] = field(default_factory=dict)

    def __call__(
        self, process: Floats, trees: Floats, physics: float, sources: NDArray[np.int32]
    ) -> Floats:
        """The blended log residual of each row; ``sources`` are codes of the vocabulary."""
        blended = self.pooled.mix(process, trees, physics)
        for code, shares in self.by_source.items():
            blended = np.where(sources == code, shares.mix(process, trees, physics), blended)
        return blended


class HeldOutErrors:
    """What each choice of shares costs on held-out rows, in mean percentage error.

    ``process`` and ``trees`` (n,) are predictions of rows whose group was held out, NaN where
    there is none. Each model of a source counts as the root of its rows, so that none decides
    alone.
    """

    def __init__(
        self, process: Floats, trees: Floats, physics: float, targets: Floats, table: Table
    ) -> None:
        self._mixed = np.array([s.mix(process, trees, physics) for s in GRID])
        self._usable = np.isfinite(process) & np.isfinite(trees)
        self._source, self._model = table.column("source"), table.column("model")
        _, member, size = np.unique(
            table.code(("source", "model")), return_inverse=True, return_counts=True
        )
        loss = np.abs(np.expm1(self._mixed - targets)) / np.sqrt(size[member])
        self._loss = np.where(self._usable, loss, 0.0)

    def best(self, *, by_source: bool) -> Blend:
        """The cheapest shares over all rows and, where asked, for each source."""
        own = [c for c in self._sources() if by_source]
        return Blend(
            GRID[self._cheapest(self._usable)],
            {code: GRID[self._cheapest(self._source == code)] for code in own},
        )

    def predictions(self, group: NDArray[np.int32], *, by_source: bool) -> Floats:
        """Blended held-out predictions; no row of a ``group`` (n,) takes part in its choice."""
        own = set(self._sources()) if by_source else set()
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
        """Sources with enough models for shares of their own."""
        return [
            int(code)
            for code in np.unique(self._source[self._usable])
            if len(np.unique(self._model[self._usable & (self._source == code)]))
            >= MODELS_OF_A_SOURCE
        ]

    def _cheapest(self, rows: Mask) -> int:
        return int(np.argmin(self._loss[:, rows].sum(axis=1)))
