"""How much of a novel job's estimate comes from the process, the trees and plain physics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .features import Table
from .kernel import Floats

# A source with fewer models has no shares of its own.
MODELS_OF_A_SOURCE = 8


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of the trees and of plain physics in an estimate; the process has the rest."""

    trees: float = 0.0
    physics: float = 0.0

    def mix(self, process: Floats, trees: Floats, physics: float) -> Floats:
        """The mixed log residual; ``physics`` is the one constant of plain physics."""
        mixed: Floats = (1 - self.trees - self.physics) * process + self.physics * physics
        return mixed + self.trees * trees if self.trees else mixed


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


def best_blend(
    process: Floats, trees: Floats, physics: float, targets: Floats, table: Table
) -> Blend:
    """The shares with the smallest mean percentage error, over all rows and by source.

    Each model of a source counts as the root of its rows, so that none decides alone.
    """
    usable = np.isfinite(process) & np.isfinite(trees)
    if not usable.any():
        return Blend()
    shares = [Shares(a / 10, c / 10) for a in range(11) for c in range(11 - a)]
    errors = np.array([np.expm1(s.mix(process, trees, physics) - targets) for s in shares])
    _, member, size = np.unique(
        table.code(("source", "model")), return_inverse=True, return_counts=True
    )
    loss = np.abs(errors) / np.sqrt(size[member])

    def best(rows: NDArray[np.bool_]) -> Shares:
        return shares[int(np.argmin(loss[:, rows].sum(axis=1)))]

    source, model = table.column("source"), table.column("model")
    return Blend(
        best(usable),
        {
            int(code): best(usable & (source == code))
            for code in np.unique(source[usable])
            if len(np.unique(model[usable & (source == code)])) >= MODELS_OF_A_SOURCE
        },
    )
