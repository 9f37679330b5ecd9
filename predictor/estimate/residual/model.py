"""The residual model: one process for what was measured, and one for what was not.

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

from .features import EncodedRows, Features, Vocabulary
from .kernel import Floats, Hyperparameters
from .novelty import (
    GROUPS,
    KnownKeys,
    PhysicsShare,
    ShareCosts,
    Tier,
    elsewhere,
    groups,
    random_folds,
)
from .process import Conditioned, GaussianProcess, leave_out

FOLDS = 5
# The correction of a never-measured model stays within this share of the corrections ever seen.
CLIP_QUANTILES = (0.01, 0.99)
# Tiers of the second process, and those of them that plain physics has a share in.
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
class ResidualEstimate:
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
        shares: Mapping[Tier, PhysicsShare],
        bounds: tuple[float, float],
    ) -> None:
        self.vocabulary = vocabulary
        self.known = known
        self.novel = novel
        self.shares = shares
        self.bounds = bounds
        self._keys = KnownKeys(known.table)

    def estimate(self, rows: Sequence[Features]) -> list[ResidualEstimate]:
        """One estimate a row."""
        table = self.vocabulary.encode(rows)
        tiers = np.array(self._keys.tiers(table))
        mean, deviation = np.zeros(len(rows)), np.zeros(len(rows))
        for tier in set(tiers.tolist()):
            at = np.flatnonzero(tiers == tier)
            mean[at], deviation[at] = self._of_tier(Tier(tier), table.take(at))
        return [
            ResidualEstimate(float(m), float(d), Tier(t))
            for m, d, t in zip(mean, deviation, tiers, strict=True)
        ]

    def _of_tier(self, tier: Tier, table: EncodedRows) -> tuple[Floats, Floats]:
        process = self.novel if tier in NOVEL else self.known
        found = process.predict(table, process.hyper.noise_of(self.vocabulary, table))
        mean = found.mean
        if tier in self.shares:
            mean = self.shares[tier].mix(mean, process.mean, table.column("source"))
        return (np.clip(mean, *self.bounds) if tier is Tier.MODEL else mean), found.deviation

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The numbers, by name; see ``to_state`` for the words."""
        table = self.known.table
        arrays: dict[str, NDArray[Any]] = {
            "codes": table.codes,
            "numbers": table.numbers,
            "options": table.options.astype(np.uint8),
        }
        for name, process in (("known", self.known), ("novel", self.novel)):
            arrays |= {f"{name}/alpha": process.alpha, f"{name}/noise": process.noise}
        return arrays

    def to_state(self) -> dict[str, Any]:
        """What JSON holds: vocabulary, hyper-parameters, shares of physics."""
        return {
            "values": [list(v) for v in self.vocabulary.values],
            "options": list(self.vocabulary.options),
            "hyperparameters": {
                "known": asdict(self.known.hyper),
                "novel": asdict(self.novel.hyper),
            },
            "means": {"known": self.known.mean, "novel": self.novel.mean},
            "physics": {tier.value: asdict(share) for tier, share in self.shares.items()},
            "bounds": list(self.bounds),
        }

    @classmethod
    def from_stored(cls, arrays: Mapping[str, NDArray[Any]], state: Mapping[str, Any]) -> Residual:
        """The inverse of ``to_arrays`` and ``to_state``."""
        options = arrays["options"].astype(np.float32)
        table = EncodedRows(arrays["codes"], arrays["numbers"], options)

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
        shares = {
            Tier(tier): PhysicsShare(s["pooled"], {int(k): v for k, v in s["by_source"].items()})
            for tier, s in state["physics"].items()
        }
        low, high = state["bounds"]
        return cls(vocabulary, process("known"), process("novel"), shares, (low, high))


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
    """Fit both processes to log residuals (n,) and cross-validate every tier."""
    vocabulary = Vocabulary.of(rows)
    table = vocabulary.encode(rows)
    known, known_fit = GaussianProcess.fit(vocabulary, table, targets, hyper.known)
    novel, novel_fit = known, known_fit
    if hyper.novel is not hyper.known:
        weights = known_fit.weights
        novel, novel_fit = GaussianProcess.fit(vocabulary, table, targets, hyper.novel, weights)
    low, high = np.quantile(targets, CLIP_QUANTILES).tolist()
    held_out: dict[Tier, HeldOut] = {}
    shares: dict[Tier, PhysicsShare] = {}
    for tier in Tier:
        held = _held_out(tier, table, novel_fit if tier in NOVEL else known_fit, targets, seed)
        if tier in NOVEL:
            by_source = tier is Tier.MODEL  # a new site has no share of its own
            errors = ShareCosts(held.mean, novel_fit.mean, targets, table)
            shares[tier] = errors.best(by_source=by_source)
            mean = errors.predictions(table.column(GROUPS[tier][0]), by_source=by_source)
            held = HeldOut(np.clip(mean, low, high) if by_source else mean, held.deviation)
        held_out[tier] = held
    residual = Residual(vocabulary, known, novel, shares, (low, high))
    return FittedResidual(residual, known_fit, novel_fit, held_out)


def _held_out(
    tier: Tier, table: EncodedRows, conditioned: Conditioned, targets: Floats, seed: int
) -> HeldOut:
    parts = (
        random_folds(len(table), FOLDS, seed) if tier is Tier.RUN else groups(table, GROUPS[tier])
    )
    posterior = leave_out(conditioned, targets, parts)
    mean = np.where(_applies(tier, table), posterior.mean, np.nan)
    return HeldOut(mean, posterior.deviation)


def _applies(tier: Tier, table: EncodedRows) -> NDArray[np.bool_]:
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
