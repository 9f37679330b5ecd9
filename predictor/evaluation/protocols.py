"""Cross-validation protocols on the shipped measurements, from the easiest to the hardest."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from profiles.gpus import gpus
from profiles.tables import operators

from ..estimate.fitting import Fitted, calibrate_held_out
from ..estimate.residual.kernel import Floats
from ..estimate.residual.model import kind_of
from ..estimate.residual.novelty import GROUPS, Tier, groups, random_folds
from ..graphs.catalog import entry_of
from ..physics.operator_time.evaluate import evaluate_operator_times
from .methods import blind_of, paper_step_s
from .scores import Figure, IntervalCoverage, Validation, summary
from .sites import covered, site_figures, source_figures
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
    pairs, base = _pairs(v)
    measured = np.exp(base + v.y[pairs[:, 0]] - v.y[pairs[:, 1]])
    predicted = np.exp(base + _both_left_out(v, pairs))
    figures += _speedup_figures(v, pairs, base, measured, predicted)
    figures += _scaling_figures(v)
    progress("operator times")
    usable = np.isfinite(random) & v.paper_rows
    return Validation(
        tuple(figures),
        tuple(coverages(v)),
        tuple(source_figures(v)),
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


def _pairs(v: Validator) -> tuple[NDArray[np.intp], Floats]:
    """Rows (pairs, 2) in single and in mixed precision, and the physical ln ratio per sample.

    A mixed row is paired with the single-precision row of its configuration and GPU count whose
    batch is nearest.
    """
    samples = np.log([p.measurement.job.step_samples for p in v.fitted.priced])
    found = [
        (int(plain[np.argmin(np.abs(samples[plain] - samples[i]))]), int(i))
        for plain, mixed in v.twins()
        for i in mixed
    ]
    pairs = np.array(found, dtype=np.intp).reshape(-1, 2)
    each = v.phys - samples
    return pairs, each[pairs[:, 0]] - each[pairs[:, 1]]


def _both_left_out(v: Validator, pairs: NDArray[np.intp]) -> Floats:
    """Difference of the residuals of each pair, predicted without both."""
    held = [v.leave([pair]) for pair in pairs]
    return np.array([one[j] - one[i] for one, (j, i) in zip(held, pairs, strict=True)])


def _speedup_figures(
    v: Validator, pairs: NDArray[np.intp], base: Floats, measured: Floats, predicted: Floats
) -> Iterator[Figure]:
    """Errors of the time ratio, single over mixed; without both rows, the model, the source."""
    name = "speed-up of mixed precision"
    both = f"{name}, both twins held out"
    yield summary(both, "full", np.abs(predicted / measured - 1))
    yield summary(both, "constant 1", np.abs(1 / measured - 1))
    yield summary(both, "physical", np.abs(np.exp(base) / measured - 1))
    for what, held in (("model", v.unseen_model()), ("source", v.unseen_source())):
        ratio = np.exp(base + held[pairs[:, 0]] - held[pairs[:, 1]]) / measured
        yield summary(f"{name}, unseen {what}", "full", np.abs(ratio - 1))


def _scaling_figures(v: Validator) -> Iterator[Figure]:
    """From one GPU to several, by the product and by what needs no learning."""
    name = "1 to n GPUs (every multi-GPU row of the model held out)"
    held = v.scaling()
    rows = v.paper_rows & np.isfinite(held)
    yield v.figure(name, "full", held, rows)
    yield v.figure(f"{name}, all sources", "full", held, np.isfinite(held))
    matched = f"{name}, where the same configuration was measured on one"
    perfect, physical = v.from_one_gpu()
    usable = rows & np.isfinite(perfect)
    for method, values in (("full", held), ("perfect scaling", perfect), ("physical", physical)):
        yield v.figure(matched, method, values, usable)


def coverages(v: Validator) -> Iterator[IntervalCoverage]:
    """IntervalCoverage of intervals calibrated without the rows they are checked on (2 halves).

    What a tier leaves out together stays in one half: the errors of one model or one source are
    alike, so rows of it on both sides would flatter.
    """
    rows = [p.row for p in v.fitted.priced]
    for tier, held in v.fitted.residual.held_out.items():
        error, half = v.y - held.mean, halves(v, tier)
        kinds = np.array([kind_of(tier, row) for row in rows])
        fits = [calibrate_held_out(v.fitted.residual, rows, v.y, side) for side in (half, ~half)]
        for level in (0.9, 0.95, 0.99):
            found = [
                covered(one, kinds, level, error, held.deviation, side)
                for one, side in zip(fits, (~half, half), strict=True)
            ]
            hits, widths = (np.concatenate(part) for part in zip(*found, strict=True))
            yield IntervalCoverage(
                tier.value, level, float(hits.mean()), float(np.median(widths)), len(hits)
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
