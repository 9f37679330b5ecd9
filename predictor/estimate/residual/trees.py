"""Small boosted trees on physical features, for what the process cannot know: a new model.

Fitted by scikit-learn, kept and evaluated as plain arrays, so that predicting needs neither
scikit-learn nor unpickling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .features import CATEGORIES, MISSING, NUMBERS, Table
from .kernel import Floats

TREES = 120
LEAVES = 8
ROWS_PER_LEAF = 30
# Residuals are clipped at this many median absolute deviations: a broken run is not a law.
OUTLIER = 5.0
ONE_HOT = ("group", "framework", "architecture", "engine", "precision", "sharding")


@dataclass(frozen=True, slots=True)
class Trees:
    """A boosted ensemble as node arrays of shape (trees, nodes); leaves point at themselves."""

    base: float
    column: NDArray[np.int32]
    threshold: Floats
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: Floats
    widths: NDArray[np.int32]

    def predict(self, table: Table) -> Floats:
        """Log residual of each row, (n,)."""
        x = _matrix(table, self.widths)
        trees = np.arange(len(self.column))
        node = np.zeros((len(x), len(trees)), dtype=np.int32)
        rows = np.arange(len(x))[:, None]
        for _ in range(LEAVES - 1):
            below = x[rows, self.column[trees, node]] <= self.threshold[trees, node]
            node = np.where(below, self.left[trees, node], self.right[trees, node])
        total: Floats = self.value[trees, node].sum(axis=1)
        return self.base + total

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """All arrays by name."""
        return {
            "base": np.array(self.base),
            "column": self.column,
            "threshold": self.threshold,
            "left": self.left,
            "right": self.right,
            "value": self.value,
            "widths": self.widths,
        }

    @classmethod
    def from_arrays(cls, a: Mapping[str, NDArray[Any]]) -> Trees:
        """The inverse of ``to_arrays``."""
        return cls(
            float(a["base"]),
            a["column"].astype(np.int32),
            a["threshold"].astype(np.float64),
            a["left"].astype(np.int32),
            a["right"].astype(np.int32),
            a["value"].astype(np.float64),
            a["widths"].astype(np.int32),
        )


def fit_trees(table: Table, targets: Floats) -> Trees:
    """Fit to log residuals (n,), outliers clipped."""
    from sklearn.ensemble import GradientBoostingRegressor

    widths = np.array(
        [int(table.codes[:, CATEGORIES.index(c)].max(initial=-1)) + 1 for c in ONE_HOT], np.int32
    )
    model = GradientBoostingRegressor(
        n_estimators=TREES,
        learning_rate=0.1,
        subsample=0.5,
        max_leaf_nodes=LEAVES,
        min_samples_leaf=ROWS_PER_LEAF,
        max_depth=None,
        max_features=0.3,
        random_state=0,
        init="zero",
    )
    base = float(np.median(targets))
    spread = float(np.median(np.abs(targets - base)))
    near = np.clip(targets - base, -OUTLIER * spread, OUTLIER * spread)
    model.fit(_matrix(table, widths), near)
    return _export(model, base, widths)


def _matrix(table: Table, widths: NDArray[np.int32]) -> Floats:
    parts = [np.where(table.numbers >= MISSING, -1.0, table.numbers)]
    for name, width in zip(ONE_HOT, widths, strict=True):
        code = table.codes[:, CATEGORIES.index(name), None]
        parts.append((code == np.arange(width)[None, :]).astype(np.float64))
    matrix = np.hstack(parts)
    assert matrix.shape[1] == len(NUMBERS) + int(widths.sum())
    # scikit-learn compares features in float32: round here, so that both decide alike
    return matrix.astype(np.float32).astype(np.float64)


def _export(model: object, base: float, widths: NDArray[np.int32]) -> Trees:
    trees = [e.tree_ for e in model.estimators_[:, 0]]  # type: ignore[attr-defined]
    size = max(t.node_count for t in trees)
    shape = (len(trees), size)
    column, left, right = (np.zeros(shape, np.int32) for _ in range(3))
    threshold, value = np.full(shape, np.inf), np.zeros(shape)
    for i, tree in enumerate(trees):
        n = tree.node_count
        here = np.arange(n)
        leaf = tree.children_left < 0
        column[i, :n] = np.where(leaf, 0, tree.feature)
        threshold[i, :n] = np.where(leaf, np.inf, tree.threshold)
        left[i, :n] = np.where(leaf, here, tree.children_left)
        right[i, :n] = np.where(leaf, here, tree.children_right)
        value[i, :n] = tree.value[:, 0, 0] * model.learning_rate  # type: ignore[attr-defined]
    return Trees(base, column, threshold, left, right, value, widths)
