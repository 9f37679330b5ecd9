"""Cross-validation protocols on the shipped measurements, from the easiest to the hardest."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from profiles.gpus import gpus
from profiles.tables import operators

from ..estimate.fitting import Fitted
from ..estimate.intervals import Intervals, calibrate
from ..estimate.residual.kernel import Floats
from ..estimate.residual.novelty import GROUPS, Tier, groups, random_folds
from ..graphs.catalog import entry_of
from ..physics.operator_time.evaluate import evaluate_operator_times
from .figures import Figure, IntervalCoverage, Validation, summary
from .methods import blind_of
from .paper import paper_step_s
from .sites import site_figures
from .validator import FOLDS, Mask, Validator


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
        v.figure(
            "random 5-fold, fold 0 only (no row of it taught the hyper-parameters)",
            "full",
            random,
            v.paper_rows & _fold_zero(len(v.y)),
        ),
    ]
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
        v.figure(
            "grouped 5-fold (configuration without batch and precision)", "full", v.grouped_folds()
        )
    )
    progress("unseen models")
    figures.append(v.figure("leave one model out", "full", v.unseen_model()))
    figures.append(
        v.figure("leave one model out, all sources", "full", v.unseen_model(), everything)
    )
    known = v.table.code(("source", "model", "variant", "framework"))
    for runs in (1, 3):
        figures.append(
            v.figure(
                f"unseen model + {runs} run(s) of it", "full", v.with_runs(("model",), known, runs)
            )
        )
    figures += site_figures(fitted, progress)
    progress("speed-up and scaling")
    measured, predicted = _speedups(v)
    figures.append(
        summary(
            "speed-up of mixed precision, both twins held out",
            "full",
            np.abs(predicted / measured - 1),
        )
    )
    figures.append(
        summary(
            "speed-up of mixed precision, both twins held out",
            "constant 1",
            np.abs(1 / measured - 1),
        )
    )
    figures.append(
        v.figure(
            "1 to n GPUs (every multi-GPU row of the model held out)",
            "full",
            v.scaling(),
            v.paper_rows & ~v.single,
        )
    )
    progress("operator times")
    usable = np.isfinite(random) & v.paper_rows
    return Validation(
        tuple(figures),
        tuple(coverages(v)),
        np.exp(v.y + v.phys)[usable],
        np.exp(random + v.phys)[usable],
        measured,
        predicted,
        evaluate_operator_times(operators(), gpus(), architectures=("sm70", "sm80")),
    )


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
        v.figure(
            f"random 5-fold, {name}, {kind}, V100/A100",
            "full",
            random,
            np.array(rows) & wanted & side,
        )
        for name, rows in choices.items()
        for kind, side in (("fp32/tf32", ~mixed), ("mixed", mixed))
    ]


def _fold_zero(n: int) -> Mask:
    mask = np.zeros(n, dtype=bool)
    mask[random_folds(n, FOLDS)[0]] = True
    return mask


def _yardsticks(v: Validator) -> list[Figure]:
    """Plain physics with one factor, and the paper's method, on the same rows."""
    steps = v.fitted.predictor.steps
    name = "no learning, DLE + DLPerf on V100/A100"
    constant = np.full(len(v.y), np.median(v.y[v.paper_rows]))
    jobs = [p.measurement.job for p in v.fitted.priced]
    paper = np.array(
        [
            np.log(paper_step_s(steps, job)) if used else np.nan
            for job, used in zip(jobs, v.paper_rows, strict=True)
        ]
    )
    return [
        v.figure(name, "physical (one factor, of these rows)", constant),
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


def coverages(v: Validator) -> Iterator[IntervalCoverage]:
    """IntervalCoverage of intervals calibrated without the rows they are checked on (2 halves).

    What a tier leaves out together stays in one half: the errors of one model or one source are
    alike, so rows of it on both sides would flatter.
    """
    for tier, held in v.fitted.residual.held_out.items():
        error = v.y - held.mean
        half = halves(v, tier)
        for level in (0.9, 0.95, 0.99):
            inside, widths = [], []
            for fit, test in ((half, ~half), (~half, half)):
                conformal = calibrate({tier: (error[fit], held.deviation[fit])})
                hit, width = _covered(conformal, tier, level, error[test], held.deviation[test])
                inside.append(hit)
                widths.append(width)
            hits, all_widths = np.concatenate(inside), np.concatenate(widths)
            yield IntervalCoverage(
                tier.value, level, float(hits.mean()), float(np.median(all_widths)), len(hits)
            )


def halves(v: Validator, tier: Tier) -> Mask:
    """Mask of about half of the rows: whole groups of a tier, so far as they fit."""
    members = groups(v.table, GROUPS[tier]) if tier in GROUPS else random_folds(len(v.y), len(v.y))
    order = np.random.default_rng(v.seed + 1).permutation(len(members))
    half = np.zeros(len(v.y), dtype=bool)
    for i in sorted(order, key=lambda i: -len(members[i])):
        if half.sum() * 2 + len(members[i]) <= len(v.y):
            half[members[i]] = True
    return half


def _covered(
    intervals: Intervals, tier: Tier, level: float, error: Floats, deviation: Floats
) -> tuple[Mask, Floats]:
    usable = np.isfinite(error) & np.isfinite(deviation)
    tail = (1 - level) / 2
    low = deviation[usable] * intervals.quantile(tier, tail)
    high = deviation[usable] * intervals.quantile(tier, 1 - tail)
    inside = (error[usable] >= low) & (error[usable] <= high)
    return inside, (np.exp(high) - np.exp(low)) / 2
