"""The plots of a report as places in percent, which ``plots.html.j2`` draws; each has a reading."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..report_data import CapacityReport, DemandForecast, Dimension, GpuHours, Range, Share
from .text import amount, day, moment, rough, shown
from .words import reading

MOST_BARS, MOST_FORECASTS, MOST_TICKS = 10, 4, 4
DAY_S = 86400.0
# Waits below this are drawn at it; their axis is logarithmic.
LEAST_WAIT_S = 30.0
_WAIT_TICKS_S = (60, 600, 3600, 6 * 3600, DAY_S, 7 * DAY_S, 30 * DAY_S, 90 * DAY_S)
_PARTS = ("completed", "running", "cancelled", "lost", "unknown")
_ROOM = 1.1  # above the highest value
_LAST_LABEL = 88.0  # percent of an axis behind which a label below it has no room


@dataclass(frozen=True, slots=True)
class Bar:
    """Part of a row, ``width`` in percent of the axis; ``css`` names its colour."""

    css: str
    width: float
    tip: str


@dataclass(frozen=True, slots=True)
class PlotRow:
    """One name with its bars end to end, and what is written behind them."""

    name: str
    bars: tuple[Bar, ...]
    label: str


@dataclass(frozen=True, slots=True)
class Shape:
    """A path over time in a box of 1000 by 100 that is stretched; ``css`` is its class."""

    css: str
    path: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A place in percent along an axis, and its label."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Tip:
    """What is said on hover over a part of the width."""

    x: float
    width: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Shapes over time; ``mark`` is a level with a name, such as the capacity."""

    title: str
    shapes: tuple[Shape, ...]
    tips: tuple[Tip, ...]
    levels: tuple[Tick, ...]
    mark: Tick | None = None
    low: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Rows or panels; ``legend`` are pairs of a class and a word, ``ticks`` stand below."""

    reading: str
    legend: tuple[tuple[str, str], ...] = ()
    rows: tuple[PlotRow, ...] = ()
    panels: tuple[Panel, ...] = ()
    ticks: tuple[Tick, ...] = ()
    axis: str = ""


def plots(report: CapacityReport) -> dict[str, Plot]:
    """Those with something to show, by the name of their table."""
    found: dict[str, Plot] = {}
    if report.use:
        found["use"] = _use(report)
    for dimension in (Dimension.GPU_TYPE, Dimension.ACCOUNT, Dimension.USER):
        if shares := report.splits.get(dimension):
            found[f"by-{dimension.value.replace('_', '-')}"] = _split(report, shares)
    if report.waits:
        found["waits"] = _waits(report)
    if report.forecasts:
        found["forecast"] = _forecasts(report)
    return found


def _split(report: CapacityReport, shares: Sequence[Share]) -> Plot:
    """Stacked bars by outcome, the total at their end."""
    top = _ROOM * max(share.hours.allocated for share in shares) or 1.0
    rows = tuple(
        PlotRow(
            shown(share.key, 40),
            tuple(
                Bar(
                    name, 100 * hours / top, f"{shown(share.key)}: {amount(hours)} GPU-hours {name}"
                )
                for name in _PARTS
                if (hours := _part(share.hours, name)) > 0
            ),
            amount(share.hours.allocated),
        )
        for share in shares[:MOST_BARS]
    )
    return Plot(
        reading=reading("split", report, shares),
        legend=_legend(report),
        rows=rows,
        ticks=tuple(tick for tick in _ticks(top) if tick.at <= _LAST_LABEL),
        axis="GPU-hours",
    )


def _waits(report: CapacityReport) -> Plot:
    """From the least wait to the median, and on to 95 %."""
    top = _ROOM * _decades(max(wait.p95_s for wait in report.waits)) or 1.0
    rows = []
    for wait in report.waits:
        tip = (
            f"{wait.size} GPUs, {wait.jobs:,} jobs: median {rough(wait.median_s)}, 95 % within "
            f"{rough(wait.p95_s)}, longest {rough(wait.longest_s)}"
        )
        median, high = 100 * _decades(wait.median_s) / top, 100 * _decades(wait.p95_s) / top
        bars = Bar("completed", median, tip), Bar("lost", high - median, tip)
        name = f"{wait.size} GPU{'' if wait.size == '1' else 's'}"
        rows.append(PlotRow(name, bars, rough(wait.p95_s)))
    within = [Tick(100 * _decades(s) / top, rough(s)) for s in _WAIT_TICKS_S]
    ticks = [tick for tick in within if tick.at <= _LAST_LABEL]
    return Plot(
        reading=reading("waits", report),
        legend=(("completed", "to the median"), ("lost", "on to 95 %")),
        rows=tuple(rows),
        ticks=tuple(ticks[:: math.ceil(len(ticks) / MOST_TICKS)] if ticks else ()),
        axis="wait (logarithmic)",
    )


def _use(report: CapacityReport) -> Plot:
    """GPUs in use by outcome under the capacity; below, GPUs waited for."""
    starts = [slot.start_s for slot in report.use]
    edges = [*starts, report.period.until_s]
    x = TimeAxis(edges[0], edges[-1])
    lengths_h = [(b - a) / 3600 for a, b in pairwise(edges)]
    held = [slot.hours.allocated / h for slot, h in zip(report.use, lengths_h, strict=True)]
    capacity = report.use[0].capacity
    gpus = None if capacity is None else capacity / lengths_h[0]
    top = _ROOM * max(*held, gpus or 0.0, 1.0)
    base = [0.0] * len(starts)
    shapes, tips = [], []
    for name in _PARTS:
        tops = [
            b + _part(u.hours, name) / h
            for b, u, h in zip(base, report.use, lengths_h, strict=True)
        ]
        shapes.append(Shape(f"area {name}", _steps(x, edges, base, tops, top)))
        base = tops
    for at, (slot, hours) in enumerate(zip(report.use, lengths_h, strict=True)):
        parts = ", ".join(f"{amount(_part(slot.hours, n) / hours)} {n}" for n in _PARTS)
        text = f"{moment(slot.start_s)} UTC, GPUs: {parts}; {amount(slot.waiting_gpus)} waited for"
        tips.append(Tip(x(edges[at]), x(edges[at + 1]) - x(edges[at]), text))
    waiting = [slot.waiting_gpus for slot in report.use]
    most = _ROOM * max(*waiting, 1.0)
    none = [0.0] * len(starts)
    return Plot(
        reading=reading("use", report),
        legend=_legend(report),
        ticks=_dates(edges[0], edges[-1]),
        panels=(
            Panel(
                title="GPUs held by jobs",
                shapes=tuple(shapes),
                tips=tuple(tips),
                levels=_ticks(top),
                mark=None if gpus is None else Tick(100 * gpus / top, f"all {amount(gpus)} GPUs"),
            ),
            Panel(
                title="GPUs waited for",
                shapes=(Shape("area waiting", _steps(x, edges, none, waiting, most)),),
                tips=tuple(tips),
                levels=_ticks(most),
                low=True,
            ),
        ),
    )


def _forecasts(report: CapacityReport) -> Plot:
    """Demand by week, the largest keys, with interval and capacity."""
    found = report.forecasts[:MOST_FORECASTS]
    weeks = [week.start_s for one in found for week in one.weeks]
    return Plot(
        reading=reading("forecast", report),
        legend=(("measured", "measured"), ("expected", "expected"), ("band", "80 % and 95 %")),
        panels=tuple(_forecast(one, min(weeks), max(weeks)) for one in found),
        ticks=_dates(min(weeks), max(weeks)),
    )


def _forecast(one: DemandForecast, from_s: float, to_s: float) -> Panel:
    past = [(week.start_s, week.measured) for week in one.weeks if week.measured is not None]
    coming = [(week.start_s, week.expected) for week in one.weeks if week.expected is not None]
    likely = [(week.start_s, week.likely) for week in one.weeks if week.likely is not None]
    middle = [(start_s, span.median) for start_s, span in coming]
    highest = [hours for _, hours in past] + [span.high for _, span in coming]
    top = _ROOM * max(*highest, one.capacity or 0.0, 1.0)
    x = TimeAxis(from_s, to_s)
    half = (x(from_s + 7 * DAY_S)) / 2
    return Panel(
        title=f"{shown(one.key, 40)}: GPU-hours a week",
        shapes=(
            Shape("area band", _band(x, coming, top)),
            Shape("area band", _band(x, likely, top)),
            Shape("line measured", _line(x, past, top)),
            Shape("line expected", _line(x, middle, top)),
        ),
        tips=tuple(
            Tip(x(at) - half, 2 * half, f"week from {day(at)}: {amount(value)} GPU-hours")
            for at, value in past + middle
        ),
        levels=_ticks(top),
        mark=None if one.capacity is None else Tick(100 * one.capacity / top, "capacity"),
    )


class TimeAxis:
    """Places from 0 to 1000 of moments between two."""

    def __init__(self, from_s: float, to_s: float) -> None:
        self._from_s, self._length_s = from_s, max(1.0, to_s - from_s)

    def __call__(self, at_s: float) -> float:
        """The place of one moment."""
        return round(1000 * (at_s - self._from_s) / self._length_s, 2)


def _steps(
    x: TimeAxis, edges: Sequence[float], base: Sequence[float], tops: Sequence[float], top: float
) -> str:
    """Bars from ``base`` to ``tops`` between the edges."""
    return "".join(
        f"M{x(edges[i])} {_y(low, top)}V{_y(high, top)}H{x(edges[i + 1])}V{_y(low, top)}Z"
        for i, (low, high) in enumerate(zip(base, tops, strict=True))
        if high > low
    )


def _line(x: TimeAxis, points: Sequence[tuple[float, float]], top: float) -> str:
    places = " L".join(f"{x(at)} {_y(value, top)}" for at, value in points)
    return f"M{places}" if places else ""


def _band(x: TimeAxis, spans: Sequence[tuple[float, Range]], top: float) -> str:
    lows = [(at, span.low) for at, span in spans]
    highs = [(at, span.high) for at, span in reversed(spans)]
    return _line(x, lows + highs, top) + ("Z" if spans else "")


def _y(value: float, top: float) -> float:
    return round(100 - 100 * value / top, 2)


def _decades(wait_s: float) -> float:
    return math.log10(max(wait_s, LEAST_WAIT_S) / LEAST_WAIT_S)


def _ticks(top: float) -> tuple[Tick, ...]:
    """At most MOST_TICKS round values from 0 to ``top``."""
    least = top / MOST_TICKS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)
    return tuple(Tick(100 * i * step / top, f"{i * step:,g}") for i in range(int(top / step) + 1))


def _dates(from_s: float, to_s: float) -> tuple[Tick, ...]:
    """At most MOST_TICKS midnights."""
    days = max(1, math.ceil((to_s - from_s) / DAY_S / MOST_TICKS))
    first_s = math.ceil(from_s / DAY_S) * DAY_S
    x = TimeAxis(from_s, to_s)
    every = range(int((to_s - first_s) / (days * DAY_S)) + 1)
    found = [first_s + i * days * DAY_S for i in every]
    ticks = (Tick(x(at) / 10, day(at)) for at in found)
    return tuple(tick for tick in ticks if tick.at <= _LAST_LABEL)


def _legend(report: CapacityReport) -> tuple[tuple[str, str], ...]:
    """Outcomes of the report; that of an unknown state only where there is one."""
    return tuple((name, name) for name in _PARTS if name != "unknown" or report.hours.unknown)


def _part(hours: GpuHours, name: str) -> float:
    return float(getattr(hours, name))
