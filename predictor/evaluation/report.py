"""The pages on accuracy (`docs/explanation`) and their plots, from one `precision-time validate`.

Their words stand in ``pages/``, with a name in braces where the rows of a table go.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from profiles.storage import shipped_yaml

from ..estimate.residual.kernel import Floats
from .validator import Figure, IntervalCoverage, Validation

PAGES = Path(__file__).parent / "pages"

_ROWS = shipped_yaml("rows.yaml", __file__)
_BESIDE = ("no learning", "random 5-fold, DLE", "speed-up", "1 to n GPUs")


def markdown(validation: Validation) -> str:
    """The page that a stranger reads first; what a validation did not count is left out."""
    full = {f.protocol: f for f in validation.figures if f.method == "full" and f.n}
    inside = {c.scope: c for c in validation.coverages if c.level == 0.95}
    cases = [
        (words, _errors(full[protocol]), _interval(inside[tier]))
        for words, tier, protocol in _ROWS["cases"]
        if protocol in full and tier in inside
    ]
    runs = [(words, _errors(full[name])) for words, name in _ROWS["runs"] if name in full]
    sources: list[tuple[object, ...]] = [
        (s.error.protocol, s.error.n, _errors(s.error), _interval(s.interval))
        for s in validation.sources
    ]
    if validation.sources:  # each counts alike
        means = np.mean([(s.error.mean, s.error.median) for s in validation.sources], axis=0)
        widths = [(s.interval.coverage, s.interval.half_width) for s in validation.sources]
        inner = np.mean(widths, axis=0)
        sources.append(("mean over sources |", _percents(*means), _width(*inner)))
    beside = [
        (f.protocol, f.method, _errors(f))
        for f in validation.figures
        if f.n and f.protocol.startswith(_BESIDE)
    ]
    return _page("accuracy.md", cases=cases, runs=runs, sources=sources, beside=beside)


def tables(validation: Validation) -> str:
    """Every figure."""
    figures = [
        (f.protocol, f.method, _percents(f.mean, f.median, f.p90), f.n) for f in validation.figures
    ]
    intervals = [
        (c.scope, f"{100 * c.level:.0f} %", _interval(c), c.n) for c in validation.coverages
    ]
    evaluation = validation.operators
    operators = [
        (e.test, e.group, e.gpu, _percents(e.mean, e.median, e.bias), e.rows)
        for e in (*evaluation.held_out_shapes, *evaluation.held_out_architectures)
        if e.gpu.startswith(("v100", "a100"))
    ]
    return _page("accuracy-tables.md", figures=figures, intervals=intervals, operators=operators)


def _page(name: str, **found: Sequence[Sequence[object]]) -> str:
    rows = {
        table: "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)
        for table, lines in found.items()
    }
    return (PAGES / name).read_text(encoding="utf-8").format(**rows)


def _percents(*ratios: float) -> str:
    return " | ".join(f"{100 * ratio:.1f} %" for ratio in ratios)


def _errors(f: Figure) -> str:
    return _percents(f.mean, f.median)


def _interval(c: IntervalCoverage) -> str:
    return _width(c.coverage, c.half_width)


def _width(coverage: float, half_width: float) -> str:
    return f"{100 * coverage:.1f} % | {100 * half_width:.0f} %"


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
    v, step, speedup = validation, "step time, random folds", "speed-up of mixed precision"
    return [
        _scatter(
            directory / "predicted-vs-measured.svg",
            v.measured_s,
            v.predicted_s,
            (f"{step}: measured (s)", "predicted (s)"),
        ),
        _scatter(
            directory / "speedup.svg",
            v.measured_ratio,
            v.predicted_ratio,
            (f"{speedup}, both twins held out: measured", "predicted"),
        ),
    ]


def _scatter(path: Path, x: Floats, y: Floats, labels: tuple[str, str]) -> Path:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5.2, 5.0), layout="constrained")
    axes.scatter(x, y, s=5, alpha=0.35, linewidths=0, rasterized=True)
    ends = np.array([min(x.min(), y.min()), max(x.max(), y.max())])
    axes.plot(ends, ends, color="black", linewidth=0.8, label="exact")
    for factor, label in ((1.2, "20 % off"), (1 / 1.2, None)):
        axes.plot(ends, ends * factor, color="grey", linewidth=0.6, linestyle="--", label=label)
    axes.set(xscale="log", yscale="log", xlabel=labels[0], ylabel=labels[1], aspect="equal")
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path
