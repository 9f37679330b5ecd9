"""The page on accuracy (`docs/explanation`) and its plots, from one `precision-time validate`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..estimate.residual.kernel import Floats
from ..physics.operator_time.evaluate import OperatorError
from .scores import Figure, IntervalCoverage, Validation

PLOT_SPEEDUP, PLOT_STEP = "speedup.svg", "predicted-vs-measured.svg"

# Rows of the first table: how new the job is, the tier that says so and the protocol of its errors.
_CASES = (
    ("this model, GPU and precision ran at this site", "run", "random 5-fold, all sources"),
    (
        "the model ran here on one GPU, and is asked for on several",
        "count",
        "1 to n GPUs (every multi-GPU row of the model held out), all sources",
    ),
    ("nobody ever measured the model", "model", "leave one model out, all sources"),
    (
        "nobody ever measured the site",
        "site",
        "unseen source, models nobody else measured too",
    ),
)
_RUNS = (
    ("no run", "unseen source"),
    ("1 run of each framework and GPU", "unseen source + 1 run per stack and GPU"),
    ("3 runs of each framework and GPU", "unseen source + 3 runs per stack and GPU"),
    ("1 run of each model, framework and GPU", "unseen source + 1 run per model, stack and GPU"),
    ("3 runs of each model, framework and GPU", "unseen source + 3 runs per model, stack and GPU"),
)
_BESIDE = ("no learning", "random 5-fold, DLE", "speed-up", "1 to n GPUs")
_HEAD = """# Accuracy

Written by `precision-time validate`; do not edit. Error is |predicted - measured| / measured of one
optimizer step (of the time ratio, for a speed-up). Every figure is out of sample: it counts rows
that taught nothing. All protocols: [accuracy-tables.md](accuracy-tables.md). What separates
models and sites that transfer from those that do not, and what was tried:
[unseen-models.md](unseen-models.md).

## How new the job is

The 95 % interval should hold 95 of 100 measured times; its half width is the price of being sure.

| what is known | mean error | median | inside 95 % | half width |
|---|---|---|---|---|
"""
_FIRST_RUNS = """
## The first runs at a site

Each source of measurements is taken for a site; its runs are left out but for a few drawn at
random. `precision-time calibrate --suggest N` names those that tell most.

| known of the site | mean error | median |
|---|---|---|
"""
_SOURCES = """
## Each source as a site nobody has measured

Nothing of the source taught the prediction or the width of its interval.

| source | rows | mean error | median | inside 95 % | half width |
|---|---|---|---|---|---|
"""
_OTHERS = """
## Beside what needs less

`full` is the product; `paper` is arXiv 2604.16145, `physical` the tables with one factor, `blind`
the same design without knowledge of precision.

| question | method | mean error | median |
|---|---|---|---|
"""
_CAVEAT = """
## How it was measured

Variances and length scales of the residual were learned by `precision-time learn` without the rows
of random fold 0; in every other protocol they, no values, have seen the rows held out. Shares of
physics in the answer are chosen without the model or source that is scored.
"""
_TABLES = """# Accuracy, all tables

Written by `precision-time validate`; do not edit. [accuracy.md](accuracy.md) is the page to read.

| protocol | method | mean | median | 90th percentile | n |
|---|---|---|---|---|---|
"""
_INTERVALS = """
## Intervals

Calibrated on one half of the held-out errors of a novelty tier, checked on the other, both ways.
What a tier leaves out together (a model, a source) is never in both halves.

| tier | level | coverage | median half width | n |
|---|---|---|---|---|
"""
_OPERATORS = """
## Operator times

The operator model on table rows it was not fitted on, V100 and A100: every fifth shape held out,
and no row of the architecture at all (sm70, sm80: what a GPU without a table gets).

| held out | operator | GPU | mean | median | bias | n |
|---|---|---|---|---|---|---|
"""


def markdown(validation: Validation) -> str:
    """The page that a stranger reads first; what a validation did not count is left out."""
    full = {f.protocol: f for f in validation.figures if f.method == "full" and f.n}
    inside = {c.scope: c for c in validation.coverages if c.level == 0.95}
    cases = (
        f"| {words} | {_errors(full[protocol])} | {_interval(inside[tier])} |\n"
        for words, tier, protocol in _CASES
        if protocol in full and tier in inside
    )
    runs = (f"| {words} | {_errors(full[name])} |\n" for words, name in _RUNS if name in full)
    sources = (
        f"| {s.error.protocol} | {s.error.n} | {_errors(s.error)} | {_interval(s.interval)} |\n"
        for s in validation.sources
    )
    beside = (
        f"| {f.protocol} | {f.method} | {_errors(f)} |\n"
        for f in validation.figures
        if f.n and f.protocol.startswith(_BESIDE)
    )
    plots = (
        f"\n![Predicted against measured step time, random folds]({PLOT_STEP})\n"
        f"\n![Predicted against measured speed-up of mixed precision]({PLOT_SPEEDUP})\n"
    )
    parts = (_HEAD, *cases, _FIRST_RUNS, *runs, _SOURCES, *sources, _mean_of(validation), _OTHERS)
    return "".join((*parts, *beside, _CAVEAT, plots))


def tables(validation: Validation) -> str:
    """Every figure."""
    figures = "".join(_figure(f) for f in validation.figures)
    intervals = "".join(_coverage(c) for c in validation.coverages)
    evaluation = validation.operators
    operators = "".join(
        _operator(e)
        for e in (*evaluation.held_out_shapes, *evaluation.held_out_architectures)
        if e.gpu.startswith(("v100", "a100"))
    )
    return _TABLES + figures + _INTERVALS + intervals + _OPERATORS + operators


def _mean_of(validation: Validation) -> str:
    """The line under the sources: each counts alike."""
    if not validation.sources:
        return ""
    means = np.mean(
        [
            (s.error.mean, s.error.median, s.interval.coverage, s.interval.half_width)
            for s in validation.sources
        ],
        axis=0,
    )
    mean, median, coverage, width = (100 * means).tolist()
    return (
        f"| mean over sources | | {mean:.1f} % | {median:.1f} % | {coverage:.1f} % "
        f"| {width:.0f} % |\n"
    )


def _errors(f: Figure) -> str:
    return f"{100 * f.mean:.1f} % | {100 * f.median:.1f} %"


def _interval(c: IntervalCoverage) -> str:
    return f"{100 * c.coverage:.1f} % | {100 * c.half_width:.0f} %"


def _figure(f: Figure) -> str:
    cells = (f"{100 * v:.1f} %" for v in (f.mean, f.median, f.p90))
    return f"| {f.protocol} | {f.method} | {' | '.join(cells)} | {f.n} |\n"


def _operator(e: OperatorError) -> str:
    cells = (f"{100 * v:.1f} %" for v in (e.mean, e.median, e.bias))
    return f"| {e.test} | {e.group} | {e.gpu} | {' | '.join(cells)} | {e.rows} |\n"


def _coverage(c: IntervalCoverage) -> str:
    return (
        f"| {c.scope} | {100 * c.level:.0f} % | {100 * c.coverage:.1f} % "
        f"| {100 * c.half_width:.0f} % | {c.n} |\n"
    )


def write(validation: Validation, directory: Path) -> list[Path]:
    """Write the pages and, where matplotlib is installed, the plots; returns what was written."""
    directory.mkdir(parents=True, exist_ok=True)
    pages = {"accuracy.md": markdown, "accuracy-tables.md": tables}
    for name, text in pages.items():
        (directory / name).write_text(text(validation), encoding="utf-8")
    return [*(directory / name for name in pages), *_plots(validation, directory)]


def _plots(validation: Validation, directory: Path) -> list[Path]:
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "precision-time"
    step, speedup = directory / PLOT_STEP, directory / PLOT_SPEEDUP
    _scatter(
        step,
        validation.measured_s,
        validation.predicted_s,
        "step time, random folds: measured (s)",
        "predicted (s)",
    )
    _scatter(
        speedup,
        validation.measured_ratio,
        validation.predicted_ratio,
        "speed-up of mixed precision, both twins held out: measured",
        "predicted",
    )
    return [step, speedup]


def _scatter(path: Path, x: Floats, y: Floats, xlabel: str, ylabel: str) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5.2, 5.0), layout="constrained")
    axes.scatter(x, y, s=5, alpha=0.35, linewidths=0, rasterized=True)
    low, high = float(min(x.min(), y.min())), float(max(x.max(), y.max()))
    axes.plot([low, high], [low, high], color="black", linewidth=0.8, label="exact")
    for factor, label in ((1.2, "20 % off"), (1 / 1.2, None)):
        axes.plot(
            [low, high],
            [low * factor, high * factor],
            color="grey",
            linewidth=0.6,
            linestyle="--",
            label=label,
        )
    axes.set(xscale="log", yscale="log", xlabel=xlabel, ylabel=ylabel, aspect="equal")
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
