"""The plots of what could be done and what is to come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..report_data import CapacityReport, DemandForecast, OpportunityKind, Range
from .axes import at_ends, dates_below, hours_axis, legend, names_of_rows, short, titled, when
from .ink import CANCELLED, DONE, INK, LOST, MUTED, RUNNING, Canvas
from .text import amount, day, rough, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class _Mark:
    label: str
    marker: str
    colour: str


_MARKS = {
    OpportunityKind.MIXED_PRECISION: _Mark("mixed precision", "o", DONE),
    OpportunityKind.OTHER_GPU: _Mark("other GPU", "s", RUNNING),
    OpportunityKind.FEWER_GPUS: _Mark("fewer GPUs", "^", LOST),
    OpportunityKind.SHORTER_LIMIT: _Mark("shorter limit", "D", CANCELLED),
}


def opportunities(canvas: Canvas, report: CapacityReport) -> None:
    """Hours saved, median and interval, in the order of the report."""
    found = report.opportunities[:10]
    heads = [o.what.split(" " if canvas.narrow else ":")[0] for o in found]
    names = [f"{i}. {head}" for i, head in enumerate(heads, start=1)]
    tips = [f"{o.kind.words}: {shown(o.what)}" for o in found]
    marks = [_MARKS[o.kind] for o in found]
    _intervals(
        canvas, names, tips, [o.saved_gpu_hours for o in found], 1.0, "GPU-hours saved", marks
    )


def backlog(canvas: Canvas, report: CapacityReport) -> None:
    """Hours until the queue is drained, by GPU type."""
    found = [(b, b.drain_s) for b in report.backlog if b.drain_s is not None][:10]
    tips = [f"{shown(b.gpu_type)}: {b.jobs:,} jobs" for b, _ in found]
    names = [b.gpu_type for b, _ in found]
    _intervals(
        canvas,
        names,
        tips,
        [drain for _, drain in found],
        3600.0,
        "hours until drained",
        ends=[rough(drain.median) for _, drain in found],
    )


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


def _intervals(
    canvas: Canvas,
    names: Sequence[str],
    tips: Sequence[str],
    ranges: Sequence[Range],
    unit: float,
    label: str,
    marks: Sequence[_Mark] = (),
    *,
    ends: Sequence[str] = (),
) -> None:
    (axes,) = canvas.axes()
    told: set[str] = set()
    for row, (found, tip) in enumerate(zip(ranges, tips, strict=True)):
        mark = marks[row] if marks else _Mark("", "o", DONE)
        low, middle, high = found.low / unit, found.median / unit, found.high / unit
        (line,) = axes.plot(
            [low, high], [row, row], color=MUTED, linewidth=3, solid_capstyle="round"
        )
        canvas.tip(line, f"{tip}: {amount(middle)} ({amount(low)} to {amount(high)}) {label}")
        new = mark.label if mark.label not in told else None
        told.add(mark.label)
        axes.plot(middle, row, mark.marker, color=mark.colour, markersize=8, label=new)
    if marks:
        legend(canvas, axes, len(told))
    medians = ends or [amount(found.median / unit) for found in ranges]
    at_ends(axes, [found.high / unit for found in ranges], medians, gap=9)
    names_of_rows(canvas, axes, names)
    hours_axis(axes, f"{label} (95 %)" if canvas.narrow else f"{label}: median and 95 % interval")
