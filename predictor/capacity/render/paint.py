"""What is painted in each plot of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..report_data import Forecast, GpuHours, OpportunityKind, Range, Report, Share, Use
from .ink import CANCELLED, DONE, INK, LOST, MUTED, RUNNING, Canvas
from .text import amount, day, moment, rough, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TICKS_S = (60, 600, 3600, 6 * 3600, 86400, 3 * 86400, 7 * 86400, 30 * 86400, 90 * 86400)
# Waits below this are drawn at it.
_LEAST_S = 30.0
_PARTS = (("completed", DONE), ("running", RUNNING), ("cancelled", CANCELLED), ("lost", LOST))
_LETTERS, _FEW_LETTERS = 30, 18


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


def use(canvas: Canvas, report: Report) -> None:
    """GPUs in use by outcome under the capacity; below, GPUs waited for."""
    held, waiting = canvas.axes(2, sharex=True, gridspec_kw={"height_ratios": [3, 1.3]})
    starts = [_when(u.start_s) for u in report.use] + [_when(report.period.until_s)]
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
        held.annotate(f"all {amount(gpus)} GPUs", (1, gpus), xycoords=("axes fraction", "data"),
                      ha="right", va="bottom", xytext=(0, 2),
                      textcoords="offset points")  # fmt: skip
    waiting.stairs([u.waiting_gpus for u in report.use], starts, fill=True, color=MUTED)
    _titled(held, "GPUs held by jobs")
    _titled(waiting, "GPUs waited for")
    _legend(canvas, held, len(_PARTS))
    for axes in (held, waiting):
        axes.set_ylim(0, 1.15 * max(1.0, axes.get_ylim()[1]))
        axes.set_xlim(starts[0], starts[-1])
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.grid(visible=False, axis="x")
        axes.locator_params(axis="y", nbins=4)
    _dates(waiting, 3 if canvas.narrow else 8)
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
    _ends(axes, left, [amount(total) for total in left])
    _names(canvas, axes, [s.key for s in shares])
    _legend(canvas, axes, len(_PARTS))
    _hours_axis(axes, "GPU-hours")


def waits(canvas: Canvas, report: Report) -> None:
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
    _ends(axes, ends, [rough(w.p95_s) for w in report.waits], gap=9)
    _names(canvas, axes, [f"{w.size} GPU{'' if w.size == '1' else 's'}" for w in report.waits])
    axes.set_xscale("log")
    ticks = [t for t in _TICKS_S if t <= 1.5 * max(ends)][-4 if canvas.narrow else -9 :]
    axes.set_xticks(ticks, [rough(t) for t in ticks])
    axes.minorticks_off()
    axes.set_xlim(_LEAST_S * 0.8, max(ends) * (6 if canvas.narrow else 2.2))
    axes.set_xlabel("wait (logarithmic)")
    _legend(canvas, axes, 2)


def tensor_cores(canvas: Canvas, report: Report) -> None:
    """FP32 hours against the others, by GPU type."""
    (axes,) = canvas.axes()
    found = report.tensor_cores
    parts = (
        ("lower precision", DONE, [t.low_precision_hours for t in found]),
        ("not known", CANCELLED, [t.unknown_hours for t in found]),
        ("FP32", LOST, [t.fp32_hours for t in found]),
    )
    left = [0.0] * len(found)
    for label, colour, widths in parts:
        bars = axes.barh(
            range(len(found)), widths, left=left, color=colour, label=label, height=0.68
        )
        for bar, use_, width in zip(bars, found, widths, strict=True):
            canvas.tip(bar, f"{use_.gpu_type}: {amount(width)} GPU-hours, {label}")
        left = [a + b for a, b in zip(left, widths, strict=True)]
    shares = [t.fp32_hours / total if total else 0.0 for t, total in zip(found, left, strict=True)]
    _ends(axes, left, [f"{100 * s:.0f} % FP32" for s in shares])
    _names(canvas, axes, [t.gpu_type for t in found])
    _legend(canvas, axes, len(parts))
    _hours_axis(axes, "GPU-hours")


def opportunities(canvas: Canvas, report: Report) -> None:
    """Hours saved, median and interval, in the order of the report."""
    found = report.opportunities[:10]
    names = [f"{i}. {o.what.split(':')[0]}" for i, o in enumerate(found, start=1)]
    tips = [f"{o.kind.value}: {shown(o.what)}" for o in found]
    marks = [_MARKS[o.kind] for o in found]
    _intervals(
        canvas, names, tips, [o.saved_gpu_hours for o in found], 1.0, "GPU-hours saved", marks
    )


def backlog(canvas: Canvas, report: Report) -> None:
    """Hours until the queue is drained, by GPU type."""
    found = [(b, b.drain_s) for b in report.backlog if b.drain_s is not None][:10]
    tips = [f"{shown(b.gpu_type)}: {b.jobs:,} jobs" for b, _ in found]
    names = [b.gpu_type for b, _ in found]
    _intervals(canvas, names, tips, [drain for _, drain in found], 3600.0, "hours until drained")


def forecasts(canvas: Canvas, report: Report) -> None:
    """Demand by week, the largest keys, with interval and capacity."""
    found = report.forecasts[:4]
    rows = canvas.axes(len(found), sharex=True)
    for axes, forecast in zip(rows, found, strict=True):
        _forecast(canvas, axes, forecast)
    _dates(rows[-1], 3 if canvas.narrow else 8)


def _forecast(canvas: Canvas, axes: Axes, forecast: Forecast) -> None:
    past = [(w.start_s, w.measured) for w in forecast.weeks if w.measured is not None]
    coming = [(w.start_s, w.expected) for w in forecast.weeks if w.expected is not None]
    if past:
        axes.plot(
            [_when(s) for s, _ in past], [m for _, m in past], color=DONE, marker="o", markersize=4
        )
    if coming:
        x = [_when(s) for s, _ in coming]
        axes.fill_between(x, [r.low for _, r in coming], [r.high for _, r in coming], color=LOST,
                          alpha=0.2, linewidth=0)  # fmt: skip
        likely = [(w.start_s, w.likely) for w in forecast.weeks if w.likely is not None]
        axes.fill_between([_when(s) for s, _ in likely], [r.low for _, r in likely],
                          [r.high for _, r in likely], color=LOST, alpha=0.25,
                          linewidth=0)  # fmt: skip
        axes.plot(
            x, [r.median for _, r in coming], color=LOST, linestyle="--", marker="s", markersize=4
        )
    for start_s, value in past + [(s, r.median) for s, r in coming]:
        (dot,) = axes.plot(_when(start_s), value, "o", color=INK, alpha=0.01, markersize=12)
        canvas.tip(dot, f"week from {day(start_s)}: {amount(value)} GPU-hours")
    if forecast.capacity is not None:
        axes.axhline(forecast.capacity, color=INK, linestyle=":", linewidth=1.2)
        axes.annotate("capacity", (0, forecast.capacity), xycoords=("axes fraction", "data"),
                      xytext=(4, 2), textcoords="offset points", va="bottom")  # fmt: skip
    axes.set_ylim(0, axes.get_ylim()[1] * 1.15)
    axes.locator_params(axis="y", nbins=4)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    unit = "" if canvas.narrow else ": GPU-hours a week, measured (solid) and expected (dashed)"
    _titled(axes, _short(canvas, forecast.key) + unit)


def _intervals(
    canvas: Canvas, names: Sequence[str], tips: Sequence[str], ranges: Sequence[Range],
    unit: float, label: str, marks: Sequence[_Mark] = (),
) -> None:  # fmt: skip
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
        _legend(canvas, axes, len(told))
    ends = [found.high / unit for found in ranges]
    _ends(axes, ends, [amount(found.median / unit) for found in ranges], gap=9)
    _names(canvas, axes, names)
    _hours_axis(axes, f"{label} (95 %)" if canvas.narrow else f"{label}: median and 95 % interval")


def _part(hours: GpuHours, name: str) -> float:
    return float(getattr(hours, name))


def _slot_tips(
    canvas: Canvas, axes: Axes, slots: Sequence[Use], starts: Sequence[float],
    length_h: Sequence[float],
) -> None:  # fmt: skip
    for i, (slot, hours) in enumerate(zip(slots, length_h, strict=True)):
        parts = ", ".join(f"{amount(_part(slot.hours, n) / hours)} {n}" for n, _ in _PARTS)
        # All but clear: a browser shows no hint of what is not painted.
        area = axes.axvspan(starts[i], starts[i + 1], alpha=0.004, color=INK, linewidth=0)
        tip = f"{moment(slot.start_s)} UTC, GPUs: {parts}"
        canvas.tip(area, f"{tip}; {amount(slot.waiting_gpus)} waited for")


def _when(unix_s: float) -> float:
    """Days since 1970, which matplotlib takes for dates."""
    return unix_s / 86400


def _ends(axes: Axes, at: Sequence[float], labels: Sequence[str], *, gap: int = 4) -> None:
    for row, (x, label) in enumerate(zip(at, labels, strict=True)):
        axes.annotate(label, (x, row), xytext=(gap, 0), textcoords="offset points", va="center")


def _short(canvas: Canvas, name: str) -> str:
    return shown(name, _FEW_LETTERS if canvas.narrow else _LETTERS)


def _names(canvas: Canvas, axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [_short(canvas, name) for name in names], color=INK)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


def _hours_axis(axes: Axes, label: str) -> None:
    axes.set_xlabel(label)
    axes.set_xlim(0, axes.get_xlim()[1] * 1.18)
    axes.locator_params(axis="x", nbins=4)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")


def _legend(canvas: Canvas, axes: Axes, columns: int) -> None:
    canvas.figure.legend(
        *axes.get_legend_handles_labels(), loc="outside upper left",
        ncols=2 if canvas.narrow and columns > 3 else columns, handlelength=1, columnspacing=1.2,
    )  # fmt: skip


def _titled(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=10, color=MUTED)


def _dates(axes: Axes, most: int) -> None:
    from matplotlib import dates

    # Their types are not stated.
    untyped: Any = dates
    locator = untyped.AutoDateLocator(minticks=2, maxticks=most)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(untyped.ConciseDateFormatter(locator))
