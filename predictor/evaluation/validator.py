"""Predictions of the shipped measurements that none of the rows they are checked on taught.

A Gaussian process predicts any group of rows from all the others in closed form, so each protocol
is exact and costs one factorisation of the group, not a refit; hyper-parameters (variances and
length scales, no values) stay those stored beside the tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..estimate.fitting import Fitted, Priced, targets
from ..estimate.residual.features import NUMBERS, EncodedRows, without_precision
from ..estimate.residual.kernel import Floats, Rows
from ..estimate.residual.novelty import Tier, elsewhere, groups, random_folds
from ..estimate.residual.process import after_run, gains

Mask = NDArray[np.bool_]
PAPER_SOURCES = ("deeplearningexamples", "dlperf")
FOLDS = 5
RUN_FIELDS = (
    *("source", "model", "variant", "framework", "framework_date", "gpu", "gpus", "gpus_per_node"),
    *("seq_len", "image_size", "optimizer", "split"),
)
CONFIGURATION = ("source", "model", "variant", "task", "framework", "gpu", "optimizer")


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the accuracy table: errors as ratios, ``n`` rows or pairs."""

    protocol: str
    method: str
    mean: float
    median: float
    p90: float
    n: int


@dataclass(frozen=True, slots=True)
class IntervalCoverage:
    """Share of measurements inside the interval, and its median half width as a ratio."""

    scope: str
    level: float
    coverage: float
    half_width: float
    n: int


@dataclass(frozen=True, slots=True)
class SourceFigure:
    """One source taken for a site nobody has measured: its errors and its 95 % intervals."""

    error: Figure
    interval: IntervalCoverage


@dataclass(frozen=True, slots=True)
class OperatorError:
    """Relative error |predicted / measured - 1| of one kind, GPU and format on unseen rows."""

    test: str
    group: str
    gpu: str
    rows: int
    mean: float
    median: float
    bias: float


@dataclass(frozen=True, slots=True)
class OperatorEvaluation:
    """Errors on held-out shapes, and on each architecture without any row of its own."""

    held_out_shapes: tuple[OperatorError, ...]
    held_out_architectures: tuple[OperatorError, ...]


@dataclass(frozen=True, slots=True)
class Validation:
    """All figures, and the pairs that the plots show."""

    figures: tuple[Figure, ...]
    coverages: tuple[IntervalCoverage, ...]
    sources: tuple[SourceFigure, ...]
    measured_s: Floats
    predicted_s: Floats
    measured_ratio: Floats
    predicted_ratio: Floats
    operators: OperatorEvaluation = field(default_factory=lambda: OperatorEvaluation((), ()))


def summary(protocol: str, method: str, errors: Floats) -> Figure:
    """Mean, median and 90th percentile of error ratios."""
    if not len(errors):
        return Figure(protocol, method, np.nan, np.nan, np.nan, 0)
    return Figure(
        protocol,
        method,
        float(errors.mean()),
        float(np.median(errors)),
        float(np.quantile(errors, 0.9)),
        len(errors),
    )


class Validator:
    """Runs the protocols on one fitted predictor."""

    def __init__(self, fitted: Fitted, seed: int = 0) -> None:
        self.fitted = fitted
        self.seed = seed
        self.y = targets(fitted.priced)
        assert fitted.residual is not None, "a stored predictor has no rows to validate"
        self.residual = fitted.residual
        self.table: EncodedRows = fitted.predictor.residual.known.table
        self.phys = np.log([p.step.step_s for p in fitted.priced])
        jobs = [p.measurement.job for p in fitted.priced]
        self.source = np.array([j.source for j in jobs])
        self.paper_rows: Mask = np.array(
            [
                j.source in PAPER_SOURCES
                and j.gpu.startswith(("v100", "a100"))
                and bool(p.measurement.row.get("throughput"))
                for j, p in zip(jobs, fitted.priced, strict=True)
            ]
        )

    # --- protocols --------------------------------------------------------------------------

    def random_folds(self) -> Floats:
        """Log residual of every row from the other four random folds."""
        return self.leave(random_folds(len(self.y), FOLDS, self.seed))

    def grouped_folds(self) -> Floats:
        """Configurations without batch and precision stay together."""
        code = np.unique([_configuration(p) for p in self.fitted.priced], return_inverse=True)[1]
        order = np.argsort(code, kind="stable")
        together = np.split(order, np.flatnonzero(np.diff(code[order])) + 1)
        return self.leave(folded(together, self.seed))

    def held_out(self, tier: Tier) -> Floats:
        """Log residual of every row without what a tier leaves out: its MODEL, its SITE ..."""
        return self.residual.held_out[tier].mean

    def elsewhere(self) -> Mask:
        """Rows of models that another source measured too."""
        return elsewhere(self.table, ("model",), ("source",))

    def with_runs(
        self, key: Sequence[str], within: NDArray[np.int64], runs: int, *, chosen: bool = False
    ) -> Floats:
        """Leave ``key`` groups out but for ``runs`` rows of each ``within`` code (n,).

        They are drawn at random, or ``chosen`` as ``calibrate --suggest`` does, without what was
        measured. A configuration is known by runs of its source, model, framework and GPU.
        """
        rng = np.random.default_rng(self.seed)
        mean = np.full(len(self.y), np.nan)
        for rows in groups(self.table, key):
            codes = within[rows]
            if chosen:
                kept = self._chosen(rows, codes, runs)
            else:
                drawn = (rng.permutation(rows[codes == one])[:runs] for one in np.unique(codes))
                kept = [int(row) for some in drawn for row in some]
            out = np.setdiff1d(rows, kept)
            if len(out):
                mean[out] = self.leave([out])[out]
        return mean

    def _chosen(self, rows: Rows, codes: NDArray[np.int64], runs: int) -> list[int]:
        """So many rows of each code (n,), each the one that narrows all rows most by then."""
        fit, kept = self.residual.known, list[int]()
        shared: Floats = np.linalg.inv(fit.inverse[np.ix_(rows, rows)]).astype(np.float64)
        shared[np.diag_indices_from(shared)] -= fit.noise[rows]
        noise, weights = np.sqrt(fit.plain_noise[rows]), np.ones(len(rows))
        free = np.ones(len(rows), dtype=bool)
        while free.any():
            at = int(np.argmax(np.where(free, gains(shared, weights, noise), -1.0)))
            shared = after_run(shared, at, noise[at])
            kept.append(int(rows[at]))
            free[at] = False
            if np.sum(codes[np.isin(rows, kept)] == codes[at]) == runs:
                free[codes == codes[at]] = False
        return kept

    def stacks(self, *, by_model: bool = False) -> NDArray[np.int64]:
        """A code per row for its source, framework as written, and GPU (and model)."""
        names = [
            "|".join((*p.measurement.stack, p.measurement.job.model if by_model else ""))
            for p in self.fitted.priced
        ]
        return np.unique(names, return_inverse=True)[1].astype(np.int64)

    def from_one_gpu(self) -> tuple[Floats, Floats]:
        """Perfect scaling and the physical ratio, as log residuals of multi-GPU rows.

        Each starts from the measured one-GPU row of the same configuration, precision, date and
        sequence length whose batch per GPU is nearest; NaN where there is none.
        """
        jobs = [p.measurement.job for p in self.fitted.priced]
        samples = np.log([j.step_samples for j in jobs])
        each = samples - np.log([j.gpus for j in jobs])
        single = np.array([j.gpus == 1 for j in jobs])
        perfect, physical = np.full(len(self.y), np.nan), np.full(len(self.y), np.nan)
        like = self.table.numbers[:, [NUMBERS.index(name) for name in ("date", "seq")]]
        parts = [
            rows[(like[rows] == same).all(axis=1)]
            for rows in groups(self.table, (*CONFIGURATION, "precision"))
            for same in np.unique(like[rows], axis=0)
        ]
        for rows in parts:
            one, many = rows[single[rows]], rows[~single[rows]]
            if len(one) and len(many):
                near = one[np.abs(each[one][None, :] - each[many][:, None]).argmin(axis=1)]
                physical[many] = self.y[near]
                step = self.y[near] + self.phys[near] + each[many] - each[near]
                perfect[many] = step - self.phys[many]
        return perfect, physical

    def twins(self) -> Iterator[tuple[Rows, Rows]]:
        """(single precision rows, mixed rows) of configurations measured in both."""
        gpus = self.table.numbers[:, NUMBERS.index("gpus")]
        date = self.table.numbers[:, NUMBERS.index("date")]
        mixed = np.array([p.measurement.job.precision.mixed for p in self.fitted.priced])
        plain = np.array(
            [p.measurement.job.precision.value in ("fp32", "tf32") for p in self.fitted.priced]
        )
        for rows in groups(self.table, CONFIGURATION):
            for key in {(gpus[r], date[r]) for r in rows}:
                same = rows[(gpus[rows] == key[0]) & (date[rows] == key[1])]
                if mixed[same].any() and plain[same].any():
                    yield same[plain[same]], same[mixed[same]]

    # --- helpers ----------------------------------------------------------------------------

    def leave(self, parts: Sequence[Rows]) -> Floats:
        """Log residuals of groups, each from all rows outside it."""
        return self.residual.leave_out(self.y, parts).mean

    def figure(
        self, protocol: str, log_predicted: Floats, rows: Mask | None = None, method: str = "full"
    ) -> Figure:
        """Error of predicted log residuals over ``rows`` (default: those of the paper)."""
        usable = np.isfinite(log_predicted) & (self.paper_rows if rows is None else rows)
        return summary(protocol, method, np.abs(np.exp(log_predicted - self.y)[usable] - 1))


def _configuration(priced: Priced) -> str:
    """Everything that defines a run but its batch and its precision."""
    job = priced.measurement.job
    software = [f"{k}={v}" for k, v in without_precision(job).options]
    return repr((*(getattr(job, name) for name in RUN_FIELDS), software))


def folded(members: list[Rows], seed: int) -> list[Rows]:
    """Groups joined at random to FOLDS folds."""
    order = np.random.default_rng(seed).permutation(len(members))
    parts = (part for part in np.array_split(order, FOLDS) if len(part))
    return [np.sort(np.concatenate([members[i] for i in part])) for part in parts]
