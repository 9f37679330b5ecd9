"""The plots of what happened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..report_data import CapacityReport, DemandForecast, GpuHours, Share, Use
from .ink import (
    CANCELLED,
    DONE,
    INK,
    LOST,
    MUTED,
    RUNNING,
    Canvas,
    at_ends,
    dates_below,
    hours_axis,
    legend,
    names_of_rows,
    short,
    titled,
    when,
)
from .text import amount, day, moment, rough, shown

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


_TICKS_S = (60, 600, 3600, 6 * 3600, 86400, 3 * 86400, 7 * 86400, 30 * 86400, 90 * 86400)
# Waits below this are drawn at it.
_LEAST_S = 30.0
_PARTS = (("completed", DONE), ("running", RUNNING), ("cancelled", CANCELLED), ("lost", LOST))


def use(canvas: Canvas, report: CapacityReport) -> None:
    """GPUs in use by outcome under the capacity; below, GPUs waited for."""
    held, waiting = canvas.axes(2, sharex=True, gridspec_kw={"height_ratios": [3, 1.3]})
    starts = [when(u.start_s) for u in report.use] + [when(report.period.until_s)]
    ends_s = [u.start_s for u in report.use[1:]] + [report.period.until_s]
    length_h = [(end - u.start_s) / 3600 for u, end in zip(report.use, ends_s, strict=True)]
    base = [0.0] * len(report.use)
    for name, colour in _PARTS:
        tops = [
            b + _part(u.hours, name) / h for b, u, h in zip(base, report.use, length_h, strict=True)
        ]
        held.stairs(tops, starts, baseline=base, fill=True, color=colour, label=name)
        base = tops
    capacity = report.use[0].capacity
    if capacity is not None:
        gpus = capacity / length_h[0]
        held.axhline(gpus, color=INK, linestyle="--", linewidth=1.2)
        held.annotate(
            f"all {amount(gpus)} GPUs",
            (1, gpus),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="bottom",
            xytext=(0, 2),
            textcoords="offset points",
        )
    waiting.stairs([u.waiting_gpus for u in report.use], starts, fill=True, color=MUTED)
    titled(held, "GPUs held by jobs")
    titled(waiting, "GPUs waited for")
    legend(canvas, held, len(_PARTS))
    for axes in (held, waiting):
        axes.set_ylim(0, 1.15 * max(1.0, axes.get_ylim()[1]))
        axes.set_xlim(starts[0], starts[-1])
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.grid(visible=False, axis="x")
        axes.locator_params(axis="y", nbins=4)
    waiting.tick_params(axis="x", pad=7)
    dates_below(waiting, 3 if canvas.narrow else 8)
    if not canvas.narrow:
        _slot_tips(canvas, held, report.use, starts, length_h)


def split(canvas: Canvas, shares: Sequence[Share]) -> None:
    """Stacked bars by outcome, the total at their end."""
    (axes,) = canvas.axes()
    left = [0.0] * len(shares)
    for name, colour in _PARTS:
        widths = [_part(s.hours, name) for s in shares]
        bars = axes.barh(
            range(len(shares)), widths, left=left, color=colour, label=name, height=0.68
        )
        for bar, found, width in zip(bars, shares, widths, strict=True):
            canvas.tip(bar, f"{shown(found.key)}: {amount(width)} GPU-hours {name}")
        left = [a + b for a, b in zip(left, widths, strict=True)]
    at_ends(axes, left, [amount(total) for total in left])
    names_of_rows(canvas, axes, [s.key for s in shares])
    legend(canvas, axes, len(_PARTS))
    hours_axis(axes, "GPU-hours")


def waits(canvas: Canvas, report: CapacityReport) -> None:
    """Median and 95 % of the wait, joined by a line."""
    (axes,) = canvas.axes()
    for row, wait in enumerate(report.waits):
        low, high = max(wait.median_s, _LEAST_S), max(wait.p95_s, _LEAST_S)
        (line,) = axes.plot(
            [low, high], [row, row], color=MUTED, linewidth=3, solid_capstyle="round"
        )
        tip = f"{wait.size} GPUs, {wait.jobs:,} jobs: median {rough(wait.median_s)}, 95 % within"
        canvas.tip(line, f"{tip} {rough(wait.p95_s)}, longest {rough(wait.longest_s)}")
        axes.plot(low, row, "o", color=DONE, label="median" if not row else None, markersize=8)
        axes.plot(
            high, row, "D", color=LOST, label="95 % within" if not row else None, markersize=7
        )
    ends = [max(w.p95_s, _LEAST_S) for w in report.waits]
    at_ends(axes, ends, [rough(w.p95_s) for w in report.waits], gap=9)
    names_of_rows(
        canvas, axes, [f"{w.size} GPU{'' if w.size == '1' else 's'}" for w in report.waits]
    )
    axes.set_xscale("log")
    ticks = [t for t in _TICKS_S if t <= 1.5 * max(ends)][-4 if canvas.narrow else -9 :]
    axes.set_xticks(ticks, [rough(t) for t in ticks])
    axes.minorticks_off()
    axes.set_xlim(_LEAST_S * 0.8, max(ends) * (6 if canvas.narrow else 2.2))
    axes.set_xlabel("wait (logarithmic)")
    legend(canvas, axes, 2)


def _part(hours: GpuHours, name: str) -> float:
    return float(getattr(hours, name))


def _slot_tips(
    canvas: Canvas,
    axes: Axes,
    slots: Sequence[Use],
    starts: Sequence[float],
    length_h: Sequence[float],
) -> None:
    for i, (slot, hours) in enumerate(zip(slots, length_h, strict=True)):
        parts = ", ".join(f"{amount(_part(slot.hours, n) / hours)} {n}" for n, _ in _PARTS)
        # All but clear: a browser shows no hint of what is not painted.
        area = axes.axvspan(starts[i], starts[i + 1], alpha=0.004, color=INK, linewidth=0)
        tip = f"{moment(slot.start_s)} UTC, GPUs: {parts}"
        canvas.tip(area, f"{tip}; {amount(slot.waiting_gpus)} waited for")
