"""The plots of a backtest, as SVG: waits, kills against unused hours, queue length."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .policies import FILL, HISTORY, ORACLE, ORDER, ORDER_USERS, OURS, USERS
from .run import Backtest
from .tables import queue_lengths, wait_quantiles
from .workload import HOUR_S

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WAITS, CURVE, QUEUE = "waits.svg", "tradeoff.svg", "queue.svg"
# Waits below this are drawn as none.
LEAST_WAIT_S = 60.0
# Quantiles that are named along the curve.
LABELLED = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
# One colour a kind of policy, one line style a quantile of it: told apart without colour, too.
_COLOURS = {
    USERS: "#000000",
    "default": "#8a8a8a",
    OURS: "#0072b2",
    FILL: "#d55e00",
    HISTORY: "#cc79a7",
    ORDER: "#56b4e9",
    ORDER_USERS: "#e69f00",
    ORACLE: "#009e73",
}
_STYLES = ("-", "--", ":", "-.")
_TICKS = {
    60: "none",
    600: "10 min",
    HOUR_S: "1 h",
    6 * HOUR_S: "6 h",
    24 * HOUR_S: "1 d",
    7 * 24 * HOUR_S: "1 w",
    30 * 24 * HOUR_S: "30 d",
}


def write_plots(found: Backtest, folder: Path) -> list[Path]:
    """Draw them into a folder that exists; returns the files. Needs matplotlib."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "precision-time"
    written = [_waits(found, folder / WAITS), _queue(found, folder / QUEUE)]
    return [*written, _tradeoff(found, folder / CURVE)] if found.curve else written


def _waits(found: Backtest, path: Path) -> Path:
    table = wait_quantiles(found)
    figure, axes = _figure()
    for column, (name, look) in enumerate(_looks(found).items(), start=1):
        axes.plot(np.maximum(table[:, column], LEAST_WAIT_S), table[:, 0], label=name, **look)
    longest = max(float(table[:, 1:].max()), 24 * HOUR_S)
    ticks = {at: label for at, label in _TICKS.items() if at <= longest}
    axes.set(xscale="log", xlabel="wait, at most", ylabel="share of jobs", ylim=(0, 1.01))
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.xaxis.set_minor_locator(_no_ticks())
    axes.legend(frameon=False, loc="lower right")
    return _save(figure, path)


def _tradeoff(found: Backtest, path: Path) -> Path:
    figure, axes = _figure()
    axes.plot(
        [p.limits.unused_gpu_hours for p in found.curve],
        [100 * p.limits.kill_rate for p in found.curve],
        color=_COLOURS[OURS],
        marker=".",
        label="ours, by quantile",
        clip_on=False,
    )
    for p in found.curve:
        if p.quantile not in LABELLED:
            continue
        at = (p.limits.unused_gpu_hours, 100 * p.limits.kill_rate)
        axes.annotate(f"{p.quantile:g}", at, xytext=(5, 4), textcoords="offset points", fontsize=7)
    markers = iter("sD^vP*X")
    for each in found.replayed:
        if each.policy.kind != OURS:
            limits = each.figures.limits
            axes.plot(
                limits.unused_gpu_hours,
                100 * limits.kill_rate,
                linestyle="none",
                marker=next(markers),
                color=_COLOURS[each.policy.kind],
                label=each.policy.name,
                clip_on=False,
                zorder=3,
            )
    axes.set(xlabel="GPU-hours reserved and not used", ylabel="jobs killed at their limit, %")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.locator_params(axis="x", nbins=6)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.legend(frameon=False)
    return _save(figure, path)


def _queue(found: Backtest, path: Path) -> Path:
    table = queue_lengths(found)
    figure, axes = _figure(width=9.0)
    for column, (name, look) in enumerate(_looks(found).items(), start=1):
        axes.plot(table[:, 0] / (24 * HOUR_S), table[:, column], label=name, **look)
    axes.set(xlabel="days since the first submission", ylabel="jobs waiting")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return _save(figure, path)


def _looks(found: Backtest) -> Mapping[str, Mapping[str, Any]]:
    looks: dict[str, Mapping[str, Any]] = {}
    seen: dict[str, int] = {}
    for each in found.replayed:
        kind = each.policy.kind
        style = _STYLES[seen.get(kind, 0) % len(_STYLES)]
        seen[kind] = seen.get(kind, 0) + 1
        looks[each.policy.name] = {"color": _COLOURS[kind], "linestyle": style, "linewidth": 1.3}
    return looks


def _figure(width: float = 6.4) -> tuple[Any, Axes]:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(width, 4.2), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(linewidth=0.3, alpha=0.6)
    return figure, axes


def _no_ticks() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()


def _save(figure: Any, path: Path) -> Path:
    from matplotlib import pyplot

    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path
