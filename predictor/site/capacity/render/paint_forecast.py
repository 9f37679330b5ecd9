"""The plot of what is to come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..report_data import CapacityReport, DemandForecast
from .axes import dates_below, short, titled, when
from .ink import DONE, INK, LOST, Canvas
from .text import amount, day

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def forecasts(canvas: Canvas, report: CapacityReport) -> None:
    """Demand by week, the largest keys, with interval and capacity."""
    found = report.forecasts[:4]
    rows = canvas.axes(len(found), sharex=True)
    for axes, forecast in zip(rows, found, strict=True):
        _forecast(canvas, axes, forecast)
    dates_below(rows[-1], 4 if canvas.narrow else 8)


def _forecast(canvas: Canvas, axes: Axes, forecast: DemandForecast) -> None:
    past = [(w.start_s, w.measured) for w in forecast.weeks if w.measured is not None]
    coming = [(w.start_s, w.expected) for w in forecast.weeks if w.expected is not None]
    if past:
        axes.plot(
            [when(s) for s, _ in past], [m for _, m in past], color=DONE, marker="o", markersize=4
        )
    if coming:
        x = [when(s) for s, _ in coming]
        axes.fill_between(
            x,
            [r.low for _, r in coming],
            [r.high for _, r in coming],
            color=LOST,
            alpha=0.2,
            linewidth=0,
        )
        likely = [(w.start_s, w.likely) for w in forecast.weeks if w.likely is not None]
        axes.fill_between(
            [when(s) for s, _ in likely],
            [r.low for _, r in likely],
            [r.high for _, r in likely],
            color=LOST,
            alpha=0.25,
            linewidth=0,
        )
        axes.plot(
            x, [r.median for _, r in coming], color=LOST, linestyle="--", marker="s", markersize=4
        )
    for start_s, value in past + [(s, r.median) for s, r in coming]:
        (dot,) = axes.plot(when(start_s), value, "o", color=INK, alpha=0.01, markersize=12)
        canvas.tip(dot, f"week from {day(start_s)}: {amount(value)} GPU-hours")
    if forecast.capacity is not None:
        axes.axhline(forecast.capacity, color=INK, linestyle=":", linewidth=1.2)
        axes.annotate(
            "capacity",
            (0, forecast.capacity),
            xycoords=("axes fraction", "data"),
            xytext=(4, 2),
            textcoords="offset points",
            va="bottom",
        )
    axes.set_ylim(0, axes.get_ylim()[1] * 1.15)
    axes.locator_params(axis="y", nbins=4)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    lines = "" if canvas.narrow else ", measured (solid) and expected (dashed)"
    titled(axes, f"{short(canvas, forecast.key)}: GPU-hours a week{lines}")
