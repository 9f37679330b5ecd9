"""`docs/accuracy.md` and its plots, written from one run of `precision-time validate`."""

from __future__ import annotations

from pathlib import Path

from ..estimate.residual.kernel import Floats
from ..physics.operator_time.evaluate import OperatorError
from .figures import Figure, IntervalCoverage, Validation

PLOT_SPEEDUP, PLOT_STEP = "speedup.svg", "predicted-vs-measured.svg"

_HEAD = """# Accuracy

Written by `precision-time validate`; do not edit. Error is |predicted - measured| / measured of one
optimizer step (of the time ratio, for the speed-up). Every figure is out of sample: the rows it
counts were held out by the protocol named in its line. Hyper-parameters of the residual (variances
and length scales, no values) were learned by `precision-time learn` without the rows of random
fold 0; in the other protocols they have seen the rows held out. The share of plain physics in the
answer for a new model is chosen without its rows. What separates models and clusters that transfer
well from those that do not: [unseen-models.md](unseen-models.md).

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
    """The page."""
    figures = "".join(_figure(f) for f in validation.figures)
    intervals = "".join(_coverage(c) for c in validation.coverages)
    plots = (
        f"\n![Predicted against measured step time, random folds]({PLOT_STEP})\n"
        f"\n![Predicted against measured speed-up of mixed precision]({PLOT_SPEEDUP})\n"
    )
    evaluation = validation.operators
    operators = "".join(
        _operator(e)
        for e in (*evaluation.held_out_shapes, *evaluation.held_out_architectures)
        if e.gpu.startswith(("v100", "a100"))
    )
    return _HEAD + figures + _INTERVALS + intervals + _OPERATORS + operators + plots


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
    """Write the page and, where matplotlib is installed, its plots; returns what was written."""
    directory.mkdir(parents=True, exist_ok=True)
    page = directory / "accuracy.md"
    page.write_text(markdown(validation), encoding="utf-8")
    return [page, *_plots(validation, directory)]


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
