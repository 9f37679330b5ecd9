"""The residual model: process for what was measured, trees for what was not, blended by tier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .features import Features, Table, Vocabulary
from .kernel import Floats, Hyperparameters
from .novelty import GROUPS, Known, Tier, elsewhere, groups, random_folds
from .process import Conditioned, GaussianProcess, leave_out
from .trees import Trees, fit_trees

FOLDS = 5
# Folds of whole groups on which the trees' own out-of-group error is learned.
TREE_FOLDS = 5
# The correction of a never-measured model stays within this share of the corrections ever seen.
CLIP_QUANTILES = (0.01, 0.99)
BLENDED = (Tier.SITE, Tier.MODEL)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Log residual of one job, its deviation (ln units) and its novelty."""

    mean: float
    deviation: float
    tier: Tier


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Out-of-sample log residuals of the fitted rows for one tier; NaN where not applicable."""

    mean: Floats
    deviation: Floats


class Residual:
    """log(measured / physical) of any job."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        process: GaussianProcess,
        trees: Trees,
        tree_weight: Mapping[Tier, float],
        bounds: tuple[float, float],
    ) -> None:
        self.vocabulary = vocabulary
        self.process = process
        self.trees = trees
        self.tree_weight = tree_weight
        self.bounds = bounds
        self._known = Known(process.table)

    def estimate(self, rows: Sequence[Features]) -> list[Estimate]:
        """One estimate a row."""
        table = self.vocabulary.encode(rows)
        noise = self.process.hyper.noise_of(self.vocabulary, table)
        posterior = self.process.predict(table, noise)
        tiers = self._known.tiers(table)
        mean = posterior.mean.copy()
        blended = np.array([i for i, t in enumerate(tiers) if self.tree_weight.get(t)], np.intp)
        if len(blended):
            share = np.array([self.tree_weight[tiers[i]] for i in blended])
            other = self.trees.predict(table.take(blended))
            mean[blended] = (1 - share) * mean[blended] + share * other
        new = np.array([t is Tier.MODEL for t in tiers])
        mean = np.where(new, np.clip(mean, *self.bounds), mean)
        return [
            Estimate(float(m), float(d), t)
            for m, d, t in zip(mean, posterior.deviation, tiers, strict=True)
        ]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The numbers, by name; see ``to_state`` for the words."""
        p = self.process
        arrays: dict[str, NDArray[Any]] = {
            "codes": p.table.codes, "numbers": p.table.numbers, "options": p.table.options,
            "weights": p.table.weights,
            "alpha": p.alpha, "noise": p.noise, "covariance": p.covariance,
        }  # fmt: skip
        return arrays | {f"trees/{k}": v for k, v in self.trees.to_arrays().items()}

    def to_state(self) -> dict[str, Any]:
        """What JSON holds: vocabulary, hyper-parameters, weights."""
        return {
            "values": [list(v) for v in self.vocabulary.values],
            "options": list(self.vocabulary.options),
            "hyperparameters": asdict(self.process.hyper),
            "tree_weight": {t.value: w for t, w in self.tree_weight.items()},
            "bounds": list(self.bounds),
            "mean": self.process.mean,
        }

    @classmethod
    def from_stored(cls, arrays: Mapping[str, NDArray[Any]], state: Mapping[str, Any]) -> Residual:
        """The inverse of ``to_arrays`` and ``to_state``; arrays may be memory-mapped."""
        vocabulary = Vocabulary(
            tuple({v: i for i, v in enumerate(values)} for values in state["values"]),
            tuple(state["options"]),
            arrays["weights"],
        )
        process = GaussianProcess(
            Table(arrays["codes"], arrays["numbers"], arrays["options"], arrays["weights"]),
            Hyperparameters(**state["hyperparameters"]),
            arrays["alpha"], arrays["noise"], state["mean"], arrays["covariance"],
        )  # fmt: skip
        trees = Trees.from_arrays(
            {k.removeprefix("trees/"): v for k, v in arrays.items() if k.startswith("trees/")}
        )
        weights = {Tier(t): float(w) for t, w in state["tree_weight"].items()}
        return cls(vocabulary, process, trees, weights, (state["bounds"][0], state["bounds"][1]))


@dataclass(frozen=True, slots=True)
class FittedResidual:
    """A residual with the held-out predictions its intervals and its evaluation rest on."""

    residual: Residual
    conditioned: Conditioned
    held_out: Mapping[Tier, HeldOut]
    targets: Floats


def fit_residual(
    rows: Sequence[Features], targets: Floats, hyper: Hyperparameters, seed: int = 0
) -> FittedResidual:
    """Fit process and trees to log residuals (n,) and cross-validate every tier."""
    vocabulary = Vocabulary.of(rows, hyper.options)
    table = vocabulary.encode(rows)
    process, conditioned = GaussianProcess.fit(vocabulary, table, targets, hyper)
    bounds = np.quantile(targets, CLIP_QUANTILES)
    limits = (float(bounds[0]), float(bounds[1]))
    held_out: dict[Tier, HeldOut] = {}
    weights: dict[Tier, float] = {}
    for tier in Tier:
        held = _held_out(tier, table, conditioned, targets, seed)
        if tier in BLENDED:
            other = _trees_out_of_group(table, targets, GROUPS[tier], seed)
            weights[tier] = _best_weight(held.mean, other, targets)
            share = weights[tier]
            blend = (1 - share) * held.mean + share * other if share else held.mean
            if tier is Tier.MODEL:
                blend = np.clip(blend, *limits)
            held = HeldOut(blend, held.deviation)
        held_out[tier] = held
    residual = Residual(vocabulary, process, fit_trees(table, targets), weights, limits)
    return FittedResidual(residual, conditioned, held_out, targets)


def _held_out(
    tier: Tier, table: Table, conditioned: Conditioned, targets: Floats, seed: int
) -> HeldOut:
    parts = (
        random_folds(len(table), FOLDS, seed) if tier is Tier.RUN else groups(table, GROUPS[tier])
    )
    posterior = leave_out(conditioned, targets, parts)
    mean, deviation = posterior.mean.copy(), posterior.deviation.copy()
    applies = _applies(tier, table)
    mean[~applies] = np.nan
    return HeldOut(mean, deviation)


def _applies(tier: Tier, table: Table) -> NDArray[np.bool_]:
    """Rows that would still be of this tier when their group is left out."""
    if tier is Tier.MODEL:
        return np.ones(len(table), dtype=bool)
    if tier is Tier.SITE:
        return elsewhere(table, ("model",), ("source",))
    if tier is Tier.TABLE:
        return elsewhere(table, ("model",), GROUPS[Tier.TABLE])
    if tier is Tier.CONFIGURATION:
        return elsewhere(table, GROUPS[Tier.TABLE], GROUPS[Tier.CONFIGURATION])
    counts = np.unique(table.code(GROUPS[Tier.CONFIGURATION]), return_inverse=True)
    return np.bincount(counts[1])[counts[1]] > 1


def _trees_out_of_group(table: Table, targets: Floats, key: Sequence[str], seed: int) -> Floats:
    members = groups(table, key)
    order = np.random.default_rng(seed).permutation(len(members))
    prediction = np.full(len(targets), np.nan)
    if len(members) < TREE_FOLDS:
        return prediction
    for part in np.array_split(order, TREE_FOLDS):
        out = np.concatenate([members[i] for i in part])
        keep = np.setdiff1d(np.arange(len(targets)), out)
        prediction[out] = fit_trees(table.take(keep), targets[keep]).predict(table.take(out))
    return prediction


def _best_weight(process: Floats, trees: Floats, targets: Floats) -> float:
    """Share of the trees that makes the mean absolute error smallest, in steps of a tenth."""
    usable = np.isfinite(process) & np.isfinite(trees)
    if not usable.any():
        return 0.0
    shares = np.linspace(0, 1, 11)
    errors = [
        float(np.mean(np.abs((1 - s) * process[usable] + s * trees[usable] - targets[usable])))
        for s in shares
    ]
    return float(shares[int(np.argmin(errors))])
