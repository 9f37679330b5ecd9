"""Cross-validation protocols on the shipped measurements, from the easiest to the hardest.

Every figure is out of sample. A Gaussian process predicts any group of rows from all the others
in closed form, so each protocol is exact and costs one factorisation of the group, not a refit;
hyper-parameters (variances and length scales, no values) stay those stored beside the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from profiles.gpus import gpus
from profiles.tables import operators

from ..fitting import Fitted, Priced, targets
from ..graphs.catalog import entry_of
from ..intervals import Intervals, calibrate
from ..operator_time import OperatorEvaluation, evaluate_operator_times
from ..paper import paper_step_s
from ..residual.features import NUMBERS, Table, without_precision
from ..residual.kernel import Floats, Rows
from ..residual.novelty import Tier, groups, random_folds
from ..residual.process import leave_out
from .methods import blind_of

Mask = NDArray[np.bool_]
PAPER_SOURCES = ("deeplearningexamples", "dlperf")
FOLDS = 5
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
class Coverage:
    """Share of measurements inside the interval, and its median half width as a ratio."""

    scope: str
    level: float
    coverage: float
    half_width: float
    n: int


@dataclass(frozen=True, slots=True)
class Validation:
    """All figures, and the pairs that the plots show."""

    figures: tuple[Figure, ...]
    coverages: tuple[Coverage, ...]
    measured_s: Floats
    predicted_s: Floats
    measured_ratio: Floats
    predicted_ratio: Floats
    operators: OperatorEvaluation = field(default_factory=lambda: OperatorEvaluation((), ()))


class Validator:
    """Runs the protocols on one fitted predictor."""

    def __init__(self, fitted: Fitted, seed: int = 0) -> None:
        self.fitted = fitted
        self.seed = seed
        self.y = targets(fitted.priced)
        self.table: Table = fitted.residual.residual.known.table
        self.phys = np.log([p.step.step_s for p in fitted.priced])
        jobs = [p.measurement.job for p in fitted.priced]
        self.source = np.array([j.source for j in jobs])
        self.single = np.array([j.gpus == 1 for j in jobs])
        self.paper_rows: Mask = np.array(
            [
                j.source in PAPER_SOURCES
                and j.gpu.startswith(("v100", "a100"))
                and bool(p.measurement.row.get("throughput"))
                for j, p in zip(jobs, fitted.priced, strict=True)
            ]
        )

    # --- protocols --------------------------------------------------------------------------

    def random_folds(self, seed: int | None = None) -> Floats:
        """Log residual of every row from the other four random folds."""
        folds = random_folds(len(self.y), FOLDS, self.seed if seed is None else seed)
        return self.leave(folds)

    def grouped_folds(self) -> Floats:
        """Configurations without batch and precision stay together."""
        code = np.unique([_configuration(p) for p in self.fitted.priced], return_inverse=True)[1]
        order = np.argsort(code, kind="stable")
        together = np.split(order, np.flatnonzero(np.diff(code[order])) + 1)
        return self.leave(_folded(together, self.seed))

    def unseen_model(self) -> Floats:
        """Every row of a model from the rows of all other models."""
        return self.fitted.residual.held_out[Tier.MODEL].mean

    def unseen_source(self) -> Floats:
        """Every row of a source from all other sources; models known elsewhere only."""
        return self.fitted.residual.held_out[Tier.SITE].mean

    def with_runs(self, key: Sequence[str], within: NDArray[np.int64], runs: int) -> Floats:
        """Leave ``key`` groups out but for ``runs`` random rows of each ``within`` code (n,).

        A row of a source, model, framework and GPU that has runs is of a known configuration.
        """
        rng = np.random.default_rng(self.seed)
        mean = np.full(len(self.y), np.nan)
        code = within
        for rows in groups(self.table, key):
            kept: list[int] = []
            for value in np.unique(code[rows]):
                members = rows[code[rows] == value]
                kept.extend(rng.permutation(members)[:runs].tolist())
            out = np.setdiff1d(rows, kept)
            if len(out):
                mean[out] = self.leave([out])[out]
        return mean

    def stacks(self) -> NDArray[np.int64]:
        """A code per row for its source, framework as written, and GPU."""
        names = ["|".join(p.measurement.stack) for p in self.fitted.priced]
        return np.unique(names, return_inverse=True)[1].astype(np.int64)

    def scaling(self) -> Floats:
        """Multi-GPU rows of a model from its one-GPU rows and all other models."""
        multi = [rows[~self.single[rows]] for rows in groups(self.table, ("model",))]
        return self.leave([rows for rows in multi if len(rows)])

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
        return leave_out(self.fitted.residual.known, self.y, parts).mean

    def figure(
        self, protocol: str, method: str, log_predicted: Floats, rows: Mask | None = None
    ) -> Figure:
        """Error of predicted log residuals over ``rows`` (default: all that have one)."""
        usable = np.isfinite(log_predicted) & (self.paper_rows if rows is None else rows)
        return summary(protocol, method, np.abs(np.exp(log_predicted - self.y)[usable] - 1))


def _configuration(priced: Priced) -> str:
    """Everything that defines a run but its batch and its precision."""
    job = priced.measurement.job
    software = [f"{k}={v}" for k, v in without_precision(job).options]
    return repr(
        (job.source, job.model, job.variant, job.framework, job.framework_date, job.gpu, job.gpus,
         job.gpus_per_node, job.seq_len, job.image_size, job.optimizer, job.split, software)
    )  # fmt: skip


def _folded(members: list[Rows], seed: int) -> list[Rows]:
    """Groups joined at random to FOLDS folds."""
    order = np.random.default_rng(seed).permutation(len(members))
    parts = (part for part in np.array_split(order, FOLDS) if len(part))
    return [np.sort(np.concatenate([members[i] for i in part])) for part in parts]


def summary(protocol: str, method: str, errors: Floats) -> Figure:
    """Mean, median and 90th percentile of error ratios."""
    if not len(errors):
        return Figure(protocol, method, np.nan, np.nan, np.nan, 0)
    return Figure(
        protocol, method, float(errors.mean()), float(np.median(errors)),
        float(np.quantile(errors, 0.9)), len(errors),
    )  # fmt: skip


def validate(
    fitted: Fitted, progress: Callable[[str], None] = lambda _stage: None, *, blind: bool = True
) -> Validation:
    """Every protocol; ``blind=False`` leaves out the precision-blind refit."""
    v = Validator(fitted)
    everything = np.ones(len(v.y), dtype=bool)
    progress("random folds")
    random = v.random_folds()
    figures = [
        v.figure("random 5-fold, DLE + DLPerf on V100/A100", "full", random),
        v.figure("random 5-fold, all sources", "full", random, everything),
        v.figure("random 5-fold, fold 0 only (no row of it taught the hyper-parameters)", "full",
                 random, v.paper_rows & _fold_zero(len(v.y))),
    ]  # fmt: skip
    figures += _well_known(v, random)
    figures += _yardsticks(v)
    if blind:
        progress("precision-blind refit")
        other = Validator(blind_of(fitted))
        figures.append(
            other.figure("random 5-fold, DLE + DLPerf on V100/A100", "blind", other.random_folds())
        )
    progress("grouped folds")
    figures.append(
        v.figure("grouped 5-fold (configuration without batch and precision)", "full",
                 v.grouped_folds())
    )  # fmt: skip
    progress("unseen models")
    figures.append(v.figure("leave one model out", "full", v.unseen_model()))
    figures.append(
        v.figure("leave one model out, all sources", "full", v.unseen_model(), everything)
    )
    known = v.table.code(("source", "model", "variant", "framework"))
    for runs in (1, 3):
        figures.append(
            v.figure(f"unseen model + {runs} run(s) of it", "full",
                     v.with_runs(("model",), known, runs))
        )  # fmt: skip
    progress("unseen sources")
    figures.append(v.figure("unseen source", "full", v.unseen_source(), everything))
    for runs in (1, 3):
        mean = v.with_runs(("source",), v.stacks(), runs)
        figures.append(
            v.figure(f"unseen source + {runs} run(s) per stack and GPU", "full", mean,
                     everything & np.isfinite(v.unseen_source()))
        )  # fmt: skip
    progress("speed-up and scaling")
    measured, predicted = _speedups(v)
    figures.append(
        summary("speed-up of mixed precision, both twins held out", "full",
                np.abs(predicted / measured - 1))
    )  # fmt: skip
    figures.append(
        summary("speed-up of mixed precision, both twins held out", "constant 1",
                np.abs(1 / measured - 1))
    )  # fmt: skip
    figures.append(
        v.figure("1 to n GPUs (every multi-GPU row of the model held out)", "full", v.scaling(),
                 v.paper_rows & ~v.single)
    )  # fmt: skip
    progress("operator times")
    usable = np.isfinite(random) & v.paper_rows
    return Validation(
        tuple(figures), tuple(coverages(v)),
        np.exp(v.y + v.phys)[usable], np.exp(random + v.phys)[usable], measured, predicted,
        evaluate_operator_times(operators(), gpus(), architectures=("volta", "ampere")),
    )  # fmt: skip


def _well_known(v: Validator, random: Floats) -> list[Figure]:
    """The networks people ask for first, on V100 and A100, single and mixed precision apart."""
    jobs = [p.measurement.job for p in v.fitted.priced]
    groups_ = [entry_of(j.model).group for j in jobs]
    sequences = [j.seq_len or entry_of(j.model).seq_len for j in jobs]
    choices = {
        "ResNet-50": [j.model == "resnet50" for j in jobs],
        "BERT-large, 128 tokens": [
            j.model == "bert-large" and n == 128 for j, n in zip(jobs, sequences, strict=True)
        ],
        "BERT-large, 512 tokens": [
            j.model == "bert-large" and n == 512 for j, n in zip(jobs, sequences, strict=True)
        ],
        "GPT": [g == "gpt" for g in groups_],
    }
    wanted = np.array([j.gpu.startswith(("v100", "a100")) for j in jobs])
    mixed = np.array([j.precision.mixed for j in jobs])
    return [
        v.figure(f"random 5-fold, {name}, {kind}, V100/A100", "full", random,
                 np.array(rows) & wanted & side)
        for name, rows in choices.items()
        for kind, side in (("fp32/tf32", ~mixed), ("mixed", mixed))
    ]  # fmt: skip


def _fold_zero(n: int) -> Mask:
    mask = np.zeros(n, dtype=bool)
    mask[random_folds(n, FOLDS)[0]] = True
    return mask


def _yardsticks(v: Validator) -> list[Figure]:
    """Plain physics with one factor, and the paper's method, on the same rows."""
    steps = v.fitted.predictor.steps
    name = "no cross-validation needed (nothing learned), DLE + DLPerf on V100/A100"
    constant = np.full(len(v.y), np.median(v.y[v.paper_rows]))
    jobs = [p.measurement.job for p in v.fitted.priced]
    paper = np.array(
        [
            np.log(paper_step_s(steps, job)) if used else np.nan
            for job, used in zip(jobs, v.paper_rows, strict=True)
        ]
    )
    return [
        v.figure(name, "physical (one global factor)", constant),
        v.figure(name, "paper", paper - v.phys),
    ]


def _speedups(v: Validator) -> tuple[Floats, Floats]:
    """Measured and predicted time ratio per sample, single over mixed; both rows left out.

    A mixed row is paired with the single-precision row of its configuration and GPU count whose
    batch is nearest.
    """
    samples = np.log([p.measurement.job.step_samples for p in v.fitted.priced])
    pairs = [
        (int(plain[np.argmin(np.abs(samples[plain] - samples[i]))]), int(i))
        for plain, mixed in v.twins()
        for i in mixed
    ]
    measured, predicted = np.zeros(len(pairs)), np.zeros(len(pairs))
    for at, (j, i) in enumerate(pairs):
        held = v.leave([np.array([j, i])])
        base = v.phys[j] - samples[j] - v.phys[i] + samples[i]
        measured[at] = np.exp(base + v.y[j] - v.y[i])
        predicted[at] = np.exp(base + held[j] - held[i])
    return measured, predicted


def coverages(v: Validator) -> Iterator[Coverage]:
    """Coverage of intervals calibrated without the rows they are checked on (2 halves)."""
    half = np.zeros(len(v.y), dtype=bool)
    half[np.random.default_rng(v.seed + 1).permutation(len(v.y))[: len(v.y) // 2]] = True
    for tier, held in v.fitted.residual.held_out.items():
        error = v.y - held.mean
        for level in (0.9, 0.95, 0.99):
            inside, widths = [], []
            for fit, test in ((half, ~half), (~half, half)):
                conformal = calibrate({tier: (error[fit], held.deviation[fit])})
                hit, width = _covered(conformal, tier, level, error[test], held.deviation[test])
                inside.append(hit)
                widths.append(width)
            hits, all_widths = np.concatenate(inside), np.concatenate(widths)
            yield Coverage(
                tier.value, level, float(hits.mean()), float(np.median(all_widths)), len(hits)
            )


def _covered(
    intervals: Intervals, tier: Tier, level: float, error: Floats, deviation: Floats
) -> tuple[Mask, Floats]:
    usable = np.isfinite(error) & np.isfinite(deviation)
    tail = (1 - level) / 2
    low = deviation[usable] * intervals.quantile(tier, tail)
    high = deviation[usable] * intervals.quantile(tier, 1 - tail)
    inside = (error[usable] >= low) & (error[usable] <= high)
    return inside, (np.exp(high) - np.exp(low)) / 2
