"""How much of a novel job's estimate is plain physics, the rest being the process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .features import EncodedRows
from .kernel import Floats

# A source with fewer models has no share of its own.
MODELS_OF_A_SOURCE = 5
SHARES = tuple(tenths / 10 for tenths in range(11))


@dataclass(frozen=True, slots=True)
class PhysicsShare:
    """The share of plain physics: that of a job's source, else that of all.

    Where one script runs every network, a new one behaves like the others; where each network has
    code of its own, physics is the better guess. Which it is, held-out models of the source tell.
    """

    pooled: float = 0.0
    by_source: Mapping[int, float] = field(default_factory=dict)

    def mix(self, process: Floats, physics: float, sources: NDArray[np.int32]) -> Floats:
        """The log residual of each row; ``physics`` is the one constant of plain physics.

        ``sources`` are codes of the vocabulary.
        """
        shares = np.array([self.by_source.get(code, self.pooled) for code in sources.tolist()])
        return process + shares * (physics - process)


class HeldOutErrors:
    """What each share costs on held-out rows, in mean percentage error.

    ``process`` (n,) are predictions of rows whose group was held out, NaN where there is none.
    Each model of a source counts as the root of its rows, so that none decides alone.
    """

    def __init__(
        self, process: Floats, physics: float, targets: Floats, table: EncodedRows
    ) -> None:
        self._mixed = np.array([process + share * (physics - process) for share in SHARES])
        self._usable = np.isfinite(process)
        self._source, self._model = table.column("source"), table.column("model")
        _, member, size = np.unique(
            table.code(("source", "model")), return_inverse=True, return_counts=True
        )
        loss = np.abs(np.expm1(self._mixed - targets)) / np.sqrt(size[member])
        self._loss = np.where(self._usable, loss, 0.0)

    def best(self, *, by_source: bool) -> PhysicsShare:
        """The cheapest share over all rows and, where asked, for each source."""
        own = self._sources() if by_source else []
        return PhysicsShare(
            SHARES[self._cheapest(self._usable)],
            {code: SHARES[self._cheapest(self._source == code)] for code in own},
        )

    def predictions(self, group: NDArray[np.int32], *, by_source: bool) -> Floats:
        """Held-out predictions; no row of a ``group`` (n,) takes part in choosing its share."""
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
        """Sources with enough models for a share of their own."""
        return [
            int(code)
            for code in np.unique(self._source[self._usable])
            if len(np.unique(self._model[self._usable & (self._source == code)]))
            >= MODELS_OF_A_SOURCE
        ]

    def _cheapest(self, rows: NDArray[np.bool_]) -> int:
        return int(np.argmin(self._loss[:, rows].sum(axis=1)))
