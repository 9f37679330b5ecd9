"""Cross-validation protocols on the shipped measurements, from the easiest to the hardest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from profiles.gpus import CPU, Gpu, gpus
from profiles.tables import OperatorTable, operators

from ..estimate.fitting import Fitted, calibrate_held_out
from ..estimate.intervals import Intervals
from ..estimate.residual.features import MISSING, NUMBERS
from ..estimate.residual.kernel import Floats
from ..estimate.residual.novelty import GROUPS, Tier, groups, random_folds
from ..estimate.residual.process import Posterior
from ..graphs.catalog import entry_of
from ..physics.operator_time.fit import fit_groups
from ..physics.operator_time.groups import groups as operator_groups
from ..physics.operator_time.groups import slots
from ..physics.operator_time.model import OperatorTimes, price
from ..physics.operator_time.samples import Samples, samples_of
from .evaluate import blind_of, paper_step_s
from .validator import (
    FOLDS,
    Figure,
    IntervalCoverage,
    Mask,
    OperatorError,
    OperatorEvaluation,
    SourceFigure,
    Validation,
    Validator,
    summary,
)

RANDOM = "random 5-fold, DLE + DLPerf on V100/A100"
UNSEEN = "unseen source"
# Which runs a site happens to have matters: 3 of each stack are worth from 18 to 23 % by the draw.
DRAWS = 5
HELD_OUT_SHAPES = 5  # of the rows of operators, every fifth shape
ERROR_ROWS = 10  # of one kind and GPU, at least


def validate(
    fitted: Fitted, progress: Callable[[str], None] = lambda _stage: None, *, blind: bool = True
) -> Validation:
    """Every protocol; ``blind=False`` leaves out the precision-blind refit."""
    v = Validator(fitted)
    rows = np.arange(len(v.y))
    everything = np.ones(len(rows), dtype=bool)
    progress("random folds")
    random, fold_0 = v.random_folds(), np.isin(rows, random_folds(len(rows), FOLDS)[0])
    untaught = "random 5-fold, fold 0 only (no row of it taught the hyper-parameters)"
    figures = [
        v.figure(RANDOM, random),
        v.figure("random 5-fold, all sources", random, everything),
        v.figure(untaught, random, v.paper_rows & fold_0),
        *_well_known(v, random),
        *_yardsticks(v),
    ]
    if blind:
        progress("precision-blind refit")
        other = Validator(blind_of(fitted))
        figures.append(other.figure(RANDOM, other.random_folds(), method="blind"))
    progress("grouped folds")
    grouped = "grouped 5-fold (configuration without batch and precision)"
    figures.append(v.figure(grouped, v.grouped_folds()))
    progress("unseen models")
    model, name = v.held_out(Tier.MODEL), "leave one model out"
    figures += [v.figure(name, model), v.figure(f"{name}, all sources", model, everything)]
    known = v.table.code(("source", "model", "variant", "framework"))
    for runs in (1, 3):
        held = v.with_runs(("model",), known, runs)
        figures.append(v.figure(f"unseen model + {runs} run(s) of it", held))
    figures += site_figures(fitted, progress)
    progress("speed-up and scaling")
    pairs, base = _pairs(v)
    one, two = pairs.T
    measured = np.exp(base + v.y[one] - v.y[two])
    without = [v.leave([pair]) for pair in pairs]  # predicted without both
    residuals = [held[j] - held[i] for held, (j, i) in zip(without, pairs, strict=True)]
    predicted = np.exp(base + np.array(residuals))
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


def _well_known(v: Validator, random: Floats) -> Iterator[Figure]:
    """The networks people ask for first, on V100 and A100, single and mixed precision apart."""
    jobs = [p.measurement.job for p in v.fitted.priced]
    lengths = [
        j.seq_len or entry_of(j.model).seq_len if j.model == "bert-large" else None for j in jobs
    ]
    choices = {
        "ResNet-50": [j.model == "resnet50" for j in jobs],
        "BERT-large, 128 tokens": [n == 128 for n in lengths],
        "BERT-large, 512 tokens": [n == 512 for n in lengths],
        "GPT": [entry_of(j.model).group == "gpt" for j in jobs],
    }
    wanted = np.array([j.gpu.startswith(("v100", "a100")) for j in jobs])
    mixed = np.array([j.precision.mixed for j in jobs])
    for name, rows in choices.items():
        for kind, side in (("fp32/tf32", ~mixed), ("mixed", mixed)):
            protocol = f"random 5-fold, {name}, {kind}, V100/A100"
            yield v.figure(protocol, random, np.array(rows) & wanted & side)


def _yardsticks(v: Validator) -> Iterator[Figure]:
    """Plain physics with one factor, and the paper's method, on the same rows."""
    steps, name = v.fitted.predictor.steps, "no learning, DLE + DLPerf on V100/A100"
    constant = np.full(len(v.y), np.median(v.y[v.paper_rows]))
    yield v.figure(name, constant, method="physical (one factor, of these rows)")
    paper = np.full(len(v.y), np.nan)
    for i in np.flatnonzero(v.paper_rows):
        paper[i] = np.log(paper_step_s(steps, v.fitted.priced[i].measurement.job))
    yield v.figure(name, paper - v.phys, method="paper")


def _pairs(v: Validator) -> tuple[NDArray[np.intp], Floats]:
    """Rows (pairs, 2) in single and in mixed precision, and the physical ln ratio per sample.

    A mixed row goes with the single-precision one of its configuration and GPUs nearest in batch.
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


def _speedup_figures(
    v: Validator, pairs: NDArray[np.intp], base: Floats, measured: Floats, predicted: Floats
) -> Iterator[Figure]:
    """Errors of the time ratio, single over mixed; without both rows, the model, the source."""
    name = "speed-up of mixed precision"
    both = f"{name}, both twins held out"
    yield summary(both, "full", np.abs(predicted / measured - 1))
    yield summary(both, "constant 1", np.abs(1 / measured - 1))
    yield summary(both, "physical", np.abs(np.exp(base) / measured - 1))
    for what, tier in (("model", Tier.MODEL), ("source", Tier.SITE)):
        held = v.held_out(tier)
        ratio = np.exp(base + held[pairs[:, 0]] - held[pairs[:, 1]]) / measured
        yield summary(f"{name}, unseen {what}", "full", np.abs(ratio - 1))


def _scaling_figures(v: Validator) -> Iterator[Figure]:
    """From one GPU to several, by the product and by what needs no learning."""
    name = "1 to n GPUs (every multi-GPU row of the model held out)"
    held = v.held_out(Tier.COUNT)
    rows = v.paper_rows & np.isfinite(held)
    yield v.figure(name, held, rows)
    yield v.figure(f"{name}, all sources", held, np.isfinite(held))
    matched = f"{name}, where the same configuration was measured on one"
    perfect, physical = v.from_one_gpu()
    usable = rows & np.isfinite(perfect)
    for method, values in (("full", held), ("perfect scaling", perfect), ("physical", physical)):
        yield v.figure(matched, values, usable, method)


def site_figures(
    fitted: Fitted, progress: Callable[[str], None] = lambda _stage: None
) -> Iterator[Figure]:
    """Every source taken for a site and left out, but for 0, 1 or 3 of its runs per stack and GPU.

    The runs are drawn at random DRAWS times, and the errors of all draws are one sample; ``n`` are
    the rows of one draw on average. Those of a stack are chosen, too. Only rows of models that
    other sources measured too; rows that were drawn are not scored.
    """
    validators = [Validator(fitted, seed) for seed in range(DRAWS)]
    v = validators[0]
    progress("unseen sources")
    unseen, elsewhere = v.held_out(Tier.SITE), v.elsewhere()
    every = np.ones(len(unseen), dtype=bool)
    yield v.figure(UNSEEN, unseen, elsewhere)
    yield v.figure(f"{UNSEEN}, models nobody else measured too", unseen, every)
    date = v.table.numbers[:, NUMBERS.index("date")]
    told = date != MISSING
    for name, rows in (
        ("2019 and before", told & (date < 2020)),
        ("2020 and 2021", told & (date >= 2020) & (date < 2022)),
        ("2022 and after", told & (date >= 2022)),
        ("unknown date", ~told),
    ):
        yield v.figure(f"{UNSEEN}, software of {name}", unseen, rows)
    for by_model, model in ((False, ""), (True, "model, ")):
        within = v.stacks(by_model=by_model)
        for runs, word in ((1, "run"), (3, "runs")):
            name = f"{runs} {word} per {model}stack and GPU"
            progress(name)
            drawn = [one.with_runs(("source",), within, runs) for one in validators]
            errors = [np.abs(np.expm1(m - v.y)[np.isfinite(m) & elsewhere]) for m in drawn]
            found = summary(f"{UNSEEN} + {name}", "full", np.concatenate(errors))
            yield replace(found, n=round(found.n / DRAWS))
            if not by_model:
                told = v.with_runs(("source",), within, runs, chosen=True)
                yield v.figure(f"{UNSEEN} + {name}, chosen", told, elsewhere)


def source_figures(v: Validator) -> Iterator[SourceFigure]:
    """Each source as a new site: errors, and intervals calibrated on the other sources alone."""
    held = v.residual.held_out[Tier.SITE]
    for source in sorted(set(v.source)):
        mine = v.source == source
        intervals = calibrate_held_out(v.residual, v.y, ~mine)
        inside = _coverage(source, Tier.SITE, 0.95, v.y, held, [(intervals, mine)])
        yield SourceFigure(v.figure(source, held.mean, mine), inside)


def coverages(v: Validator) -> Iterator[IntervalCoverage]:
    """IntervalCoverage of intervals calibrated without the rows they are checked on (2 halves).

    What a tier leaves out together stays in one half: the errors of one model or one source are
    alike, so rows of it on both sides would flatter. One half alone would be chance.
    """
    for tier, held in v.residual.held_out.items():
        sides = [s for n in range(DRAWS) for h in [halves(v, tier, n)] for s in (h, ~h)]
        fits = [(calibrate_held_out(v.residual, v.y, side), ~side) for side in sides]
        for level in (0.9, 0.95, 0.99):
            found = _coverage(tier.value, tier, level, v.y, held, fits)
            yield replace(found, n=found.n // DRAWS)


def _coverage(
    scope: str,
    tier: Tier,
    level: float,
    y: Floats,
    held: Posterior,
    fits: list[tuple[Intervals, Mask]],
) -> IntervalCoverage:
    """How many rows lie in their interval, and how wide it is, each fit checked on its rows."""
    hits, widths = [], []
    error, tail = y - held.mean, (1 - level) / 2
    for fit, rows in fits:
        used = rows & np.isfinite(error) & np.isfinite(held.deviation)
        low, high = (fit.quantile(tier, part) * held.deviation[used] for part in (tail, 1 - tail))
        hits.append((error[used] >= low) & (error[used] <= high))
        widths.append((np.exp(high) - np.exp(low)) / 2)
    inside, width = np.concatenate(hits), float(np.median(np.concatenate(widths)))
    return IntervalCoverage(scope, level, float(inside.mean()), width, len(inside))


def halves(v: Validator, tier: Tier, draw: int = 0) -> Mask:
    """Mask of about half of the rows: whole groups of a tier, so far as they fit."""
    members = groups(v.table, GROUPS[tier]) if tier in GROUPS else random_folds(len(v.y), len(v.y))
    order = np.random.default_rng(v.seed + draw).permutation(len(members))
    half = np.zeros(len(v.y), dtype=bool)
    for i in order:
        if half.sum() * 2 + len(members[i]) <= len(v.y):
            half[members[i]] = True
    return half


def evaluate_operator_times(
    table: OperatorTable, gpus: Mapping[str, Gpu], *, architectures: tuple[str, ...] = ()
) -> OperatorEvaluation:
    """Refit without every fifth shape, then without each of ``architectures`` (default: all)."""
    samples = samples_of(table, {name: gpu for name, gpu in gpus.items() if gpu.kind != CPU})
    unseen = ((samples.shape * 2654435761 % 2**32) >> 7) % HELD_OUT_SHAPES == 0  # of their hash
    shapes = tuple(errors_on("shape", samples, unseen, gpus))
    names = architectures or tuple(str(a) for a in np.unique(samples.architecture))
    left_out = tuple(
        error
        for name in names
        for error in errors_on(name, samples, samples.architecture == name, gpus)
    )
    return OperatorEvaluation(shapes, left_out)


def errors_on(
    test: str, samples: Samples, unseen: Mask, gpus: Mapping[str, Gpu]
) -> Iterator[OperatorError]:
    """Errors of each kind of operator on each GPU, in the rows that are ``unseen`` (n,)."""
    model = OperatorTimes(fit_groups(samples.take(np.flatnonzero(~unseen))))
    held = samples.take(np.flatnonzero(unseen))
    predicted = predict(model, held, gpus)
    slot = slots(held.work)
    for group in operator_groups():
        for gpu in np.unique(held.gpu[slot == group.slot]):
            rows = (slot == group.slot) & (held.gpu == gpu)
            if rows.sum() < ERROR_ROWS:
                continue
            error = predicted[rows] / held.seconds[rows] - 1.0
            yield OperatorError(
                test=test,
                group=group.name,
                gpu=str(gpu),
                rows=int(rows.sum()),
                mean=float(np.abs(error).mean()),
                median=float(np.median(np.abs(error))),
                bias=float(np.median(error)),
            )


def predict(model: OperatorTimes, samples: Samples, gpus: Mapping[str, Gpu]) -> Floats:
    """Seconds (n,) the model gives for samples of any GPUs."""
    seconds = np.zeros(len(samples))
    for name in np.unique(samples.gpu):
        index = np.flatnonzero(samples.gpu == name)
        constants = model.constants(gpus[str(name)])
        seconds[index] = price(constants, samples.work.take(index))
    return seconds
