"""The residual model: one process for what was measured, one for what was not, and trees.

Hyper-parameters that predict a known configuration best trust what a site did before; those that
predict a new model or cluster best trust physics. So there are two sets, and two processes over
the same rows; the novelty tier of a job decides which of them speaks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .blend import Blend, HeldOutErrors, Shares
from .features import Features, Table, Vocabulary
from .kernel import Floats, Hyperparameters
from .novelty import GROUPS, Known, Tier, elsewhere, groups, random_folds
from .process import Conditioned, GaussianProcess, leave_out
from .trees import Trees, fit_trees

FOLDS = 5
# Folds of whole groups on which the trees' own out-of-group error is learned.
TREE_FOLDS = 4
# The correction of a never-measured model stays within this share of the corrections ever seen.
CLIP_QUANTILES = (0.01, 0.99)
NOVEL = (Tier.SITE, Tier.MODEL)


@dataclass(frozen=True, slots=True)
class HyperparameterSets:
    """The set for known configurations and the set for new models and sites."""

    known: Hyperparameters
    novel: Hyperparameters

    @classmethod
    def initial(cls) -> HyperparameterSets:
        """Where learning starts."""
        both = Hyperparameters.initial()
        return cls(both, both)


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
        known: GaussianProcess,
        novel: GaussianProcess,
        trees: Trees,
        blends: Mapping[Tier, Blend],
        bounds: tuple[float, float],
    ) -> None:
        self.vocabulary = vocabulary
        self.known = known
        self.novel = novel
        self.trees = trees
        self.blends = blends
        self.bounds = bounds
        self._keys = Known(known.table)

    def estimate(self, rows: Sequence[Features]) -> list[Estimate]:
        """One estimate a row."""
        table = self.vocabulary.encode(rows)
        tiers = self._keys.tiers(table)
        new = np.array([tier in NOVEL for tier in tiers])
        mean, deviation = np.zeros(len(rows)), np.zeros(len(rows))
        for process, mask in ((self.known, ~new), (self.novel, new)):
            at = np.flatnonzero(mask)
            if len(at):
                part = table.take(at)
                posterior = process.predict(part, process.hyper.noise_of(self.vocabulary, part))
                mean[at], deviation[at] = posterior.mean, posterior.deviation
        for i in np.flatnonzero(new):
            mean[i] = self._blended(tiers[i], mean[i : i + 1], table.take(np.array([i])))
        return [
            Estimate(float(m), float(d), t) for m, d, t in zip(mean, deviation, tiers, strict=True)
        ]

    def _blended(self, tier: Tier, mean: Floats, one: Table) -> float:
        trees = self.trees.predict(one)
        blend = self.blends[tier]
        value = float(blend(mean, trees, self.novel.mean, one.column("source"))[0])
        return float(np.clip(value, *self.bounds)) if tier is Tier.MODEL else value

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The numbers, by name; see ``to_state`` for the words."""
        table = self.known.table
        arrays: dict[str, NDArray[Any]] = {
            "codes": table.codes,
            "numbers": table.numbers,
            "options": table.options.astype(np.uint8),
        }
        for name, p in (("known", self.known), ("novel", self.novel)):
            arrays |= {
                f"{name}/alpha": p.alpha,
                f"{name}/noise": p.noise,
            }
        return arrays | {f"trees/{k}": v for k, v in self.trees.to_arrays().items()}

    def to_state(self) -> dict[str, Any]:
        """What JSON holds: vocabulary, hyper-parameters, blends."""
        return {
            "values": [list(v) for v in self.vocabulary.values],
            "options": list(self.vocabulary.options),
            "hyperparameters": {
                "known": asdict(self.known.hyper),
                "novel": asdict(self.novel.hyper),
            },
            "means": {"known": self.known.mean, "novel": self.novel.mean},
            "blends": {t.value: asdict(b) for t, b in self.blends.items()},
            "bounds": list(self.bounds),
        }

    @classmethod
    def from_stored(cls, arrays: Mapping[str, NDArray[Any]], state: Mapping[str, Any]) -> Residual:
        """The inverse of ``to_arrays`` and ``to_state``."""
        options = arrays["options"].astype(np.float32)
        table = Table(arrays["codes"], arrays["numbers"], options)

        def process(name: str) -> GaussianProcess:
            return GaussianProcess(
                table,
                Hyperparameters(**state["hyperparameters"][name]),
                arrays[f"{name}/alpha"],
                arrays[f"{name}/noise"],
                state["means"][name],
            )

        vocabulary = Vocabulary(
            tuple({v: i for i, v in enumerate(values)} for values in state["values"]),
            tuple(state["options"]),
        )
        trees = Trees.from_arrays(
            {k.removeprefix("trees/"): v for k, v in arrays.items() if k.startswith("trees/")}
        )
        blends = {
            Tier(t): Blend(
                Shares(**b["pooled"]), {int(k): Shares(**v) for k, v in b["by_source"].items()}
            )
            for t, b in state["blends"].items()
        }
        low, high = state["bounds"]
        return cls(vocabulary, process("known"), process("novel"), trees, blends, (low, high))


@dataclass(frozen=True, slots=True)
class FittedResidual:
    """A residual with the held-out predictions its intervals and its evaluation rest on."""

    residual: Residual
    known: Conditioned
    novel: Conditioned
    held_out: Mapping[Tier, HeldOut]


def fit_residual(
    rows: Sequence[Features], targets: Floats, hyper: HyperparameterSets, seed: int = 0
) -> FittedResidual:
    """Fit processes and trees to log residuals (n,) and cross-validate every tier."""
    vocabulary = Vocabulary.of(rows)
    table = vocabulary.encode(rows)
    known, known_fit = GaussianProcess.fit(vocabulary, table, targets, hyper.known)
    novel, novel_fit = known, known_fit
    if hyper.novel is not hyper.known:
        novel, novel_fit = GaussianProcess.fit(
            vocabulary, table, targets, hyper.novel, known_fit.weights
        )
    bounds = np.quantile(targets, CLIP_QUANTILES)
    limits = (float(bounds[0]), float(bounds[1]))
    held_out: dict[Tier, HeldOut] = {}
    blends: dict[Tier, Blend] = {}
    for tier in Tier:
        conditioned = novel_fit if tier in NOVEL else known_fit
        held = _held_out(tier, table, conditioned, targets, seed)
        if tier in NOVEL:
            trees = _trees_out_of_group(table, targets, GROUPS[tier], seed)
            by_source = tier is Tier.MODEL  # a new site has no shares of its own
            errors = HeldOutErrors(held.mean, trees, novel_fit.mean, targets, table)
            blends[tier] = errors.best(by_source=by_source)
            held_out_by = table.column(GROUPS[tier][0])
            mean = errors.predictions(held_out_by, by_source=by_source)
            held = HeldOut(np.clip(mean, *limits) if tier is Tier.MODEL else mean, held.deviation)
        held_out[tier] = held
    residual = Residual(vocabulary, known, novel, fit_trees(table, targets), blends, limits)
    return FittedResidual(residual, known_fit, novel_fit, held_out)


def _held_out(
    tier: Tier, table: Table, conditioned: Conditioned, targets: Floats, seed: int
) -> HeldOut:
    parts = (
        random_folds(len(table), FOLDS, seed) if tier is Tier.RUN else groups(table, GROUPS[tier])
    )
    posterior = leave_out(conditioned, targets, parts)
    mean = np.where(_applies(tier, table), posterior.mean, np.nan)
    return HeldOut(mean, posterior.deviation)


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
    _, member = np.unique(table.code(GROUPS[Tier.CONFIGURATION]), return_inverse=True)
    more: NDArray[np.bool_] = np.bincount(member)[member] > 1
    return more


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
