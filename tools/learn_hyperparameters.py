"""Learns the variances of the residual: `python tools/learn_hyperparameters.py`, some minutes.

To be run once per data release, before `tools/fit_shipped.py`. By L-BFGS-B they minimise the mean
absolute error of leaving out groups, with log-normal priors, where they begin: single rows for
known configurations, whole models and sources for novel ones. Each round sees a fresh random subset
of tables. The objective reduces to one matrix, its derivative by the covariance.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from predictor.estimate.fitting import HYPERPARAMETERS, fit_steps, price, targets
from predictor.estimate.measurement import shipped
from predictor.estimate.residual import kernel
from predictor.estimate.residual.features import EncodedRows, Vocabulary
from predictor.estimate.residual.kernel import (
    OPTIONS,
    TERMS,
    Floats,
    Hyperparameters,
    KernelTerm,
    Rows,
    Singles,
    blocks,
    distance,
)
from predictor.estimate.residual.model import FOLDS, HyperparameterSets
from predictor.estimate.residual.novelty import groups, random_folds
from predictor.estimate.residual.process import Conditioned, condition
from profiles.storage import shipped_yaml

# Where learning expects each length scale of TERMS.
START_SCALES = (
    {name: 2.0 for term in TERMS for name in term.scales}
    | dict.fromkeys(shipped_yaml("terms.yaml", kernel.__file__)["physics"], 1.0)
    | {"date": 3.0, OPTIONS: 4.0}
)
# Prior of a term's deviation (median, spread in ln); spread in ln of a length scale around its
# start, and of a source's noise around 1.
DEVIATION_PRIOR = (0.08, 1.0)
SCALE_SPREAD = 0.7
NOISE_SPREAD = 0.7

# The value of an objective, and its derivative by the covariance.
Objective = Callable[[Conditioned, Floats], tuple[float, Floats]]


@dataclass(frozen=True, slots=True)
class LearningPlan:
    """Rounds, iterations of a round, rows of its subset, at most ``table_rows`` of each table.

    ``noise`` is where the deviation of one measurement begins; its prior is flat.
    ``leave_out`` are the keys of the groups left out, all of them in every round; an empty key is
    single rows. Many short rounds fit no subset too well, and what they come to is the mean of the
    ends of the later half.
    """

    leave_out: tuple[tuple[str, ...], ...]
    rounds: int = 8
    iterations: int = 5
    rows: int = 2000
    table_rows: int = 250
    noise: float = 0.025
    seed: int = 0


# One set for configurations that were measured, one for new models and new sites. Rows of a table
# teach it little about others: a few of each, so that a round sees nearly every table.
KNOWN_PLAN = LearningPlan(leave_out=((),))
NOVEL_PLAN = LearningPlan(
    leave_out=(("model",), ("source",)),
    rounds=4,
    iterations=8,
    rows=1600,
    table_rows=8,
    noise=0.2,
)


def learn(
    table: EncodedRows,
    vocabulary: Vocabulary,
    targets: Floats,
    plan: LearningPlan,
    progress: Callable[[str, float], None] = lambda _stage, _value: None,
) -> Hyperparameters:
    """Hyper-parameters that explain ``targets`` (n,) best; ``progress`` gets stage and loss.

    ``vocabulary`` is the one the table was encoded with.
    """
    logs = _Logarithms(vocabulary.sources)
    theta = logs.start(plan.noise)
    subsets, ends = _subsets(table, plan), []
    # Rows of a group are no evidence of their own: the prior weighs as one of the groups.
    counts = [len(groups(table, key)) if key else len(table) for key in plan.leave_out]
    for _ in range(plan.rounds):
        rows = next(subsets)
        part = table.take(rows)
        objective = _leave_out_of(part, plan.leave_out)
        loss = _Loss(part, targets[rows], objective, logs, theta, 1 / float(np.mean(counts)))
        found = minimize(
            loss, theta, jac=True, method="L-BFGS-B", options={"maxiter": plan.iterations}
        )
        theta = found.x
        ends.append(theta)
        progress("leave-out error", float(found.fun))
    return logs.hyper(np.mean(ends[-max(1, plan.rounds // 2) :], axis=0))


class _Loss:
    """An objective on one subset as a function of the logarithms, with its gradient.

    The Student-t weights of the rows are those of the start.
    """

    def __init__(
        self,
        part: EncodedRows,
        targets: Floats,
        objective: Objective,
        logs: _Logarithms,
        theta: Floats,
        prior_share: float,
    ) -> None:
        self._targets, self._objective, self._logs = targets, objective, logs
        self._prior_share = prior_share
        self._source = part.column("source")
        self._pairs = [_Pairs(term, part) for term in TERMS]
        self._weights: Floats | None = None
        self._weights = self._conditioned(theta)[0].weights

    def __call__(self, theta: Floats) -> tuple[float, Floats]:
        """Loss and slope."""
        fitted, values = self._conditioned(theta)
        loss, weight = self._objective(fitted, self._targets)
        deviations, scales, _, _ = self._logs.split(np.exp(theta))
        slopes = [
            pairs.slope(weight, value, deviation)
            for pairs, value, deviation in zip(self._pairs, values, deviations, strict=True)
        ]
        noise = 2.0 * np.diag(weight) * fitted.noise
        slope = np.concatenate(
            [
                [one[0] for one in slopes],
                np.concatenate([one[1:] for one in slopes]) / scales,
                np.bincount(self._source, noise, len(self._logs.sources)),
                [noise.sum()],
            ]
        )
        prior, prior_slope = self._logs.prior(theta)
        return loss + prior * self._prior_share, slope + prior_slope * self._prior_share

    def _conditioned(self, theta: Floats) -> tuple[Conditioned, list[Singles]]:
        deviations, scales, by_source, noise = self._logs.split(np.exp(theta))
        matrix = np.diag(np.full(len(self._targets), float(deviations @ deviations)))
        values, first = [], 0
        for pairs, deviation in zip(self._pairs, deviations, strict=True):
            last = first + len(pairs.distances)
            value = pairs.covariance(deviation, scales[first:last])
            matrix[pairs.later, pairs.earlier] += value
            values.append(value)
            first = last
        noises = noise[0] * by_source[self._source]
        return condition(matrix, self._targets, noises, self._weights), values


class _Pairs:
    """The pairs of rows that share the categories of a term, and their distances.

    ``distances`` are (scales, pairs). ``later`` rows are behind ``earlier`` ones, so that they
    fill the lower triangle, which is all that conditioning reads.
    """

    def __init__(self, term: KernelTerm, table: EncodedRows) -> None:
        inside = [np.sort(rows) for rows in blocks(term, table)]
        corners = [np.tril_indices(len(rows), -1) for rows in inside]
        self.later = _joined([rows[i] for rows, (i, _) in zip(inside, corners, strict=True)])
        self.earlier = _joined([rows[j] for rows, (_, j) in zip(inside, corners, strict=True)])
        found = [
            [distance(name, part, part)[corner] for name in term.scales]
            for part, corner in zip(map(table.take, inside), corners, strict=True)
        ]
        self.distances = np.array([np.concatenate(one) for one in zip(*found, strict=True)])
        self.distances = self.distances.reshape(len(term.scales), len(self.later))

    def covariance(self, deviation: float, scales: Floats) -> Singles:
        """Covariance of each pair."""
        exponent = -(1 / scales).astype(np.float32) @ self.distances
        return np.asarray(np.float32(deviation**2) * np.exp(exponent))

    def slope(self, weight: Floats, value: Singles, deviation: float) -> Floats:
        """By the logarithm of the deviation, then by that of each scale times the scale."""
        weighted = 2.0 * weight[self.later, self.earlier] * value
        own = float(weighted.sum() + deviation**2 * np.trace(weight))
        return np.array([2.0 * own, *(self.distances @ weighted)])


def _joined(parts: Sequence[Rows]) -> Rows:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.intp)


def _subsets(table: EncodedRows, plan: LearningPlan) -> Iterator[Rows]:
    """Tables (one source and model) at random until there are enough rows."""
    rng = np.random.default_rng(plan.seed)
    tables = groups(table, ("source", "model"))
    while True:
        chosen: list[Rows] = []
        for i in rng.permutation(len(tables)):
            chosen.append(rng.permutation(tables[i])[: plan.table_rows])
            if sum(map(len, chosen)) >= plan.rows:
                break
        yield np.sort(np.concatenate(chosen)[: plan.rows])


def _leave_out_of(part: EncodedRows, keys: Sequence[tuple[str, ...]]) -> Objective:
    """The mean of ``_leave_out`` over the keys."""
    parts = [groups(part, key) if key else list(np.arange(len(part))[:, None]) for key in keys]

    def objective(fitted: Conditioned, targets: Floats) -> tuple[float, Floats]:
        losses, weights = zip(*(_leave_out(fitted, targets, p) for p in parts), strict=True)
        return sum(losses) / len(keys), np.asarray(sum(weights) / len(keys))

    return objective


def _leave_out(fitted: Conditioned, targets: Floats, parts: Sequence[Rows]) -> tuple[float, Floats]:
    """Mean absolute error of leaving groups out, and its derivative by the covariance.

    With B the block of the inverse of a group, its error is r = B^-1 alpha. The derivative of
    sum |r| follows from d inverse = -inverse dK inverse.
    """
    n = len(targets)
    residual, direction = np.zeros(n), np.zeros(n)
    member = np.zeros(n, dtype=np.intp)
    for i, rows in enumerate(parts):
        block = fitted.inverse[np.ix_(rows, rows)]
        residual[rows] = np.linalg.solve(block, fitted.alpha[rows])
        direction[rows] = np.linalg.solve(block, np.sign(residual[rows]) / n)
        member[rows] = i
    one = np.zeros((n, len(parts)))
    one[np.arange(n), member] = 1.0
    left = fitted.inverse @ (one * direction[:, None])
    right = fitted.inverse @ (one * residual[:, None])
    weight = left @ right.T - np.outer(fitted.inverse @ direction, fitted.alpha)
    return float(np.abs(residual).mean()), 0.5 * (weight + weight.T)


class _Logarithms:
    """Hyper-parameters as one vector of logarithms: deviations, scales, noise by source, noise."""

    def __init__(self, sources: Sequence[str]) -> None:
        self.sources = tuple(sources)
        self._scales = [(term.name, scale) for term in TERMS for scale in term.scales]
        sizes = (len(TERMS), len(self._scales), len(self.sources), 1)
        self._cuts = np.cumsum(sizes[:-1])
        median, spread = DEVIATION_PRIOR
        centres = [
            np.full(len(TERMS), np.log(median)),
            np.log([START_SCALES[scale] for _, scale in self._scales]),
            np.zeros(len(self.sources) + 1),
        ]
        spreads = (spread, SCALE_SPREAD, NOISE_SPREAD, np.inf)  # of the noise: flat
        self._centre: Floats = np.concatenate(centres)
        self._precision: Floats = np.repeat(np.array(spreads) ** -2.0, sizes)

    def start(self, noise: float) -> Floats:
        """The vector where the priors have it, with this noise."""
        return np.append(self._centre[:-1], np.log(noise))

    def hyper(self, theta: Floats) -> Hyperparameters:
        """The hyper-parameters of a vector."""
        deviations, scales, sources, noise = self.split(np.exp(theta))
        by_term: dict[str, dict[str, float]] = {}
        for (term, scale), value in zip(self._scales, scales.tolist(), strict=True):
            by_term.setdefault(term, {})[scale] = value
        return Hyperparameters(
            dict(zip([term.name for term in TERMS], deviations.tolist(), strict=True)),
            by_term,
            float(noise[0]),
            dict(zip(self.sources, sources.tolist(), strict=True)),
        )

    def split(self, vector: Floats) -> list[NDArray[np.float64]]:
        """Its four parts."""
        return np.split(vector, self._cuts)

    def prior(self, theta: Floats) -> tuple[float, Floats]:
        """The negative log prior, and its slope."""
        apart = theta - self._centre
        return 0.5 * float(self._precision @ apart**2), self._precision * apart


def learn_and_store(
    plans: tuple[LearningPlan, LearningPlan] = (KNOWN_PLAN, NOVEL_PLAN),
    progress: Callable[[str, float], None] = lambda _stage, _value: None,
    *,
    path: Path = HYPERPARAMETERS,
) -> HyperparameterSets:
    """Learn both sets from all rows but those of random fold 0, and store them.

    Fold 0 stays clean: no row of it teaches anything that its own prediction rests on.
    """
    priced, _ = price(fit_steps(), shipped())
    rows, y = [p.row for p in priced], targets(priced)
    vocabulary = Vocabulary.of(rows)
    table = vocabulary.encode(rows)
    taught = np.setdiff1d(np.arange(len(y)), random_folds(len(y), FOLDS)[0])
    known, novel = (
        learn(table.take(taught), vocabulary, y[taught], plan, progress) for plan in plans
    )
    sets = HyperparameterSets(known, novel)
    stored = json.loads(json.dumps(asdict(sets)), parse_float=lambda v: float(f"{float(v):.4g}"))
    path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    return sets


def main() -> int:
    """Learn both sets, and say what each round came to."""
    learn_and_store(progress=lambda at, loss: print(f"{at}: {loss:.4f}", file=sys.stderr))
    print(f"stored in {HYPERPARAMETERS}; `python tools/fit_shipped.py` uses them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
