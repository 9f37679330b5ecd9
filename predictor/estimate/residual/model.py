"""The residual model: one process for what was measured, and one for what was not.

Hyper-parameters that predict a known configuration best trust what a site did before; those that
predict a new model or cluster best trust physics. So there are two sets, and two processes over
the same rows. The second speaks for new models and new sites, and hands a site over to the first
as the site is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .features import MANY, NUMBERS, EncodedRows, Features, Vocabulary
from .kernel import Floats, Hyperparameters, Rows
from .novelty import (
    GROUPS,
    SAME_COUNT,
    KnownKeys,
    PhysicsShare,
    ShareCosts,
    Tier,
    alike,
    elsewhere,
    groups,
    random_folds,
)
from .process import Conditioned, GaussianProcess, Posterior, alpha_without, leave_out

FOLDS = 5
# Tiers of the second process, and those that plain physics has a share in.
NOVEL = (Tier.SITE, Tier.MODEL)
BLENDED = (Tier.MODEL, Tier.COUNT)
# Those whose benchmarks teach us tune them: on several GPUs ordinary trainings take longer, on one
# they do not. Blind draws of them ask for 1.08 to 1.16, the best-known records for none
# (docs/explanation/unseen-models.md).
MANY_ELSEWHERE = 1.05
# A site with so many measurements is predicted half by each process; up to 30 are as good.
HAND_OVER_ROWS = 10.0
# Pulls the slopes of the spread towards none, per unit of weight and standard deviation: few
# sources teach them.
SHRINKAGE = 0.6
ITERATIONS = 12


@dataclass(frozen=True, slots=True)
class HyperparameterSets:
    """The set for known configurations and the set for new models and sites."""

    known: Hyperparameters
    novel: Hyperparameters


@dataclass(frozen=True, slots=True)
class ResidualEstimate:
    """Log residual of one job, its deviation (ln units) and its novelty.

    ``like`` is the tier whose held-out errors are like its own: that of sites for any new site.
    """

    mean: float
    deviation: float
    tier: Tier
    like: Tier


class Spread:
    """How far predictions at new sites miss, by what a job is made of: a factor on deviations.

    The process believes all of them about as sure. Yet steps of large matrix products transfer
    well, steps bound by host, update or messages do not. The factor is exp(slopes x numbers), held
    within the numbers of ``taught``: a regression with exponential errors (McCullagh & Nelder,
    Generalized Linear Models, ch. 8).
    """

    def __init__(self, slopes: Floats, taught: EncodedRows) -> None:
        self.slopes = slopes
        self._low, self._high = taught.numbers.min(axis=0), taught.numbers.max(axis=0)
        self._centre = taught.numbers.mean(axis=0)

    @classmethod
    def learn(cls, taught: EncodedRows, misses: Floats, weights: Floats) -> Spread:
        """From absolute errors over deviations (n,) of rows that count by ``weights`` (n,)."""
        size = taught.numbers.std(axis=0)
        size[size == 0] = np.inf
        size[NUMBERS.index("date")] = np.inf  # may be unknown
        numbers = (taught.numbers - taught.numbers.mean(axis=0)) / size
        design = np.column_stack([np.ones(len(taught)), numbers])
        weighted = design.T * (weights / weights.sum())
        shrunk = weighted @ design + np.diag([0.0] + [SHRINKAGE] * len(NUMBERS))
        expected = np.full(len(taught), np.log(np.average(misses, weights=weights)))
        for _ in range(ITERATIONS):  # Fisher scoring
            scores = expected + misses * np.exp(-expected) - 1
            coefficients = np.linalg.solve(shrunk, weighted @ scores)
            expected = design @ coefficients
        return cls(coefficients[1:] / size, taught)

    def factors(self, table: EncodedRows) -> Floats:
        """The factor of each row, (n,)."""
        numbers = np.clip(table.numbers, self._low, self._high) - self._centre
        return np.asarray(np.exp(numbers @ self.slopes))


@dataclass(eq=False)
class Residual:
    """log(measured / physical) of any job."""

    vocabulary: Vocabulary
    known: GaussianProcess
    novel: GaussianProcess
    shares: Mapping[Tier, PhysicsShare]
    spread: Spread

    def __post_init__(self) -> None:
        self._keys = KnownKeys(self.known.table)
        self._rows_of_source = np.bincount(self.known.table.column("source"))

    def estimate(self, rows: Sequence[Features]) -> list[ResidualEstimate]:
        """One estimate a row."""
        table = self.vocabulary.encode(rows)
        tiers = np.array(self._keys.tiers(table))
        mean, deviation = np.zeros(len(rows)), np.zeros(len(rows))
        for tier in set(tiers.tolist()):
            at = np.flatnonzero(tiers == tier)
            mean[at], deviation[at] = self._of_tier(Tier(tier), table.take(at))
        nowhere = table.column("source") < 0
        mean[nowhere & (table.column(MANY) > 0)] += np.log(MANY_ELSEWHERE)
        like = np.where(nowhere, Tier.SITE, tiers)
        if (sites := like == Tier.SITE).any():
            deviation *= np.where(sites, self.spread.factors(table), 1.0)
        return [
            ResidualEstimate(float(m), float(d), Tier(t), Tier(near))
            for m, d, t, near in zip(mean, deviation, tiers, like, strict=True)
        ]

    def _of_tier(self, tier: Tier, table: EncodedRows) -> tuple[Floats, Floats]:
        found = self._posterior(tier, table)
        mean, share = found.mean, self.shares.get(tier)
        if share is not None:
            physics: float | Floats = self.novel.mean
            if tier is Tier.COUNT:
                one = self._posterior(tier, table.on_one_gpu()).mean
                physics = np.where(table.column(MANY), one, mean)
            mean = share.mix(mean, physics, table.column("source"))
        return mean, found.deviation

    def _posterior(self, tier: Tier, table: EncodedRows) -> Posterior:
        novel = self._of_process(self.novel, table)
        if tier in NOVEL:
            return novel
        known = self._of_process(self.known, table)
        return handed_over(novel, known, self._rows_of_source[table.column("source")])

    def _of_process(self, process: GaussianProcess, table: EncodedRows) -> Posterior:
        return process.predict(table, process.hyper.noise_of(self.vocabulary, table))

    def joint_covariance(self, rows: Sequence[Features]) -> tuple[Floats, float]:
        """What is not known of jobs together, (n, n), and the deviation of one run; ln units."""
        table = self.vocabulary.extended(rows).encode(rows)
        return self.known.joint_covariance(table), self.known.hyper.noise

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The numbers, by name; see ``to_state`` for the words."""
        table = self.known.table
        arrays: dict[str, NDArray[Any]] = {
            "codes": table.codes,
            "numbers": table.numbers,
            "options": table.options.astype(np.uint8),
            "slopes": self.spread.slopes,
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
        spread = Spread(arrays["slopes"], table)
        return cls(vocabulary, process("known"), process("novel"), shares, spread)


def handed_over(novel: Posterior, known: Posterior, rows: NDArray[Any]) -> Posterior:
    """Of both processes, by how many ``rows`` (n,) the site of each has been measured with."""
    share = rows / (rows + HAND_OVER_ROWS)
    return Posterior(
        novel.mean + share * (known.mean - novel.mean),
        np.hypot(share * known.deviation, (1 - share) * novel.deviation),
    )


@dataclass(frozen=True, slots=True)
class FittedResidual:
    """A residual with the held-out predictions its intervals and its evaluation rest on.

    A row is NaN in ``held_out`` of the tiers it is not of.
    """

    residual: Residual
    known: Conditioned
    novel: Conditioned
    held_out: Mapping[Tier, Posterior]

    def leave_out(self, targets: Floats, parts: Sequence[Rows]) -> Posterior:
        """Each part from all rows outside it, as rows of sites that have been measured."""
        return _leave_out(self.residual.known.table, self.known, self.novel, targets, parts)


def _leave_out(
    table: EncodedRows,
    known: Conditioned,
    novel: Conditioned,
    targets: Floats,
    parts: Sequence[Rows],
) -> Posterior:
    source = table.column("source")
    left = np.bincount(source)[source]
    for rows in parts:
        left[rows] -= np.bincount(source[rows], minlength=source.max() + 1)[source[rows]]
    first, second = (leave_out(one, targets, parts) for one in (novel, known))
    return handed_over(first, second, left)


def fit_residual(
    rows: Sequence[Features], targets: Floats, hyper: HyperparameterSets
) -> FittedResidual:
    """Fit both processes to log residuals (n,) and cross-validate every tier."""
    vocabulary = Vocabulary.of(rows)
    table = vocabulary.encode(rows)
    known, known_fit = GaussianProcess.fit(vocabulary, table, targets, hyper.known)
    novel, novel_fit = known, known_fit
    if hyper.novel is not hyper.known:
        weights = known_fit.weights
        novel, novel_fit = GaussianProcess.fit(vocabulary, table, targets, hyper.novel, weights)
    held_out: dict[Tier, Posterior] = {}
    shares: dict[Tier, PhysicsShare] = {}
    for tier in Tier:
        parts = _parts(tier, table)
        if tier is Tier.SITE:
            found = leave_out(novel_fit, targets, parts, hyper.novel.noise)
        elif tier is Tier.MODEL:
            found = leave_out(novel_fit, targets, parts)
        else:
            found = _leave_out(table, known_fit, novel_fit, targets, parts)
        mean = np.where(_applies(tier, table), found.mean, np.nan)
        if tier in BLENDED:
            physics: float | Floats = novel_fit.mean
            if tier is Tier.COUNT:
                physics = _on_one_gpu(known, known_fit, parts, np.isfinite(mean))
            errors = ShareCosts(mean, physics, targets, table)
            shares[tier] = errors.best()
            mean = errors.predictions(table.column("model"))
        deviation = found.deviation
        if tier is Tier.SITE:
            misses, weights = np.abs(targets - mean) / deviation, alike(table, "source")
            spread = Spread.learn(table, misses, weights)
            for part in parts if len(parts) > 1 else ():
                others = np.setdiff1d(np.arange(len(table)), part)
                taught = Spread.learn(table.take(others), misses[others], weights[others])
                deviation[part] *= taught.factors(table.take(part))
        held_out[tier] = Posterior(mean, deviation)
    residual = Residual(vocabulary, known, novel, shares, spread)
    return FittedResidual(residual, known_fit, novel_fit, held_out)


def _parts(tier: Tier, table: EncodedRows) -> list[Rows]:
    """What is left out together; of counts only the rows on several GPUs."""
    if tier is Tier.RUN:
        return random_folds(len(table), FOLDS)
    parts = groups(table, GROUPS[tier])
    if tier is Tier.COUNT:
        return [rows for rows in parts if table.column(MANY)[rows[0]]]
    return parts


def _on_one_gpu(
    process: GaussianProcess, fitted: Conditioned, parts: Sequence[Rows], usable: NDArray[np.bool_]
) -> Floats:
    """What the fit without each part says of its usable rows on one of their GPUs; else NaN."""
    one = process.table.on_one_gpu()
    mean = np.full(len(one), np.nan)
    for rows in parts:
        asked = rows[usable[rows]]
        if len(asked):
            alpha = alpha_without(fitted, rows)
            mean[asked] = process.mean + process.cross(one.take(asked)) @ alpha
    return mean


def _applies(tier: Tier, table: EncodedRows) -> NDArray[np.bool_]:
    """Rows that would still be of this tier when their group is left out."""
    if tier in NOVEL:
        return np.ones(len(table), dtype=bool)
    if tier is Tier.COUNT:
        return np.logical_and(elsewhere(table, SAME_COUNT[:2], (MANY,)), table.column(MANY))
    if tier is Tier.TABLE:
        return elsewhere(table, ("model",), GROUPS[Tier.TABLE])
    if tier is Tier.CONFIGURATION:
        return elsewhere(table, GROUPS[Tier.TABLE], GROUPS[Tier.CONFIGURATION])
    _, member = np.unique(table.code(GROUPS[Tier.CONFIGURATION]), return_inverse=True)
    more: NDArray[np.bool_] = np.bincount(member)[member] > 1
    return more
