"""One HTML page that needs nothing beside it: no network, styles, script and plots inside.

Plots are places in percent, which ``plots.html.j2`` draws; each has a reading.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ..report_data import CapacityReport, DemandForecast, Dimension, Share
from .files import csv_text
from .tables import Column, ReportTable, Value, sections
from .words import (
    amount,
    day,
    environment,
    filled,
    findings,
    headlines,
    moment,
    read,
    reading,
    rough,
    shown,
    templates,
)

# Longer tables go on in their CSV: a page of 100,000 rows opens nowhere.
MOST_ROWS = 500
# Names up to so many letters are kept in one line.
_BRIEF = 24
_FIXED = "\u00a0"
MOST_BARS, MOST_FORECASTS, MOST_TICKS = 10, 4, 4
DAY_S = 86400.0
# Waits below this are drawn at it; their axis is logarithmic.
LEAST_WAIT_S = 30.0
_WAIT_TICKS_S = (60, 600, 3600, 6 * 3600, DAY_S, 7 * DAY_S, 30 * DAY_S, 90 * DAY_S)
_PARTS = ("completed", "running", "cancelled", "lost", "unknown")
_ROOM = 1.1  # above the highest value
_LAST_LABEL = 88.0  # percent of an axis behind which a label below it has no room

# Values for the template: a row with its bars (``css`` names their colour), a shape (``path`` in a
# box of 1000 by 100 that is stretched), or what is said on hover over a part of the width.
Drawn = Mapping[str, object]
Points = Sequence[tuple[float, float]]


def render_html(report: CapacityReport) -> str:
    """The page; raises NotInstalledError without Jinja."""
    script = read("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = environment(escaped=True).get_template("page.html.j2")
    return page.render(
        report=report,
        gpus=filled(templates()["gpus"], report),
        origin=filled(templates()["origin"], report),
        headlines=headlines(report),
        actions=findings(report),
        notes=[shown(note, 400) for note in report.notes],
        sections=sections(report),
        plots=plots(report),
        most_rows=MOST_ROWS,
        cell_text=cell_text,
        cell_css=cell_css,
        column_css=column_css,
        csv_url=csv_url,
        css=read("page.css"),
        script=script,
        script_hash=f"sha256-{digest}",
    )


def csv_url(table: ReportTable) -> str:
    """All rows of a table as a link that holds them."""
    encoded = base64.b64encode(csv_text(table).encode("utf-8", "replace")).decode()
    return f"data:text/csv;charset=utf-8;base64,{encoded}"


def cell_text(column: Column, value: Value) -> str:
    """A value; the interval of a range goes below its median where there is no room beside it."""
    text = column.text(value)
    return text.replace(" ", _FIXED).replace(f"{_FIXED}(", " (") if column.is_span else text


def cell_css(column: Column, value: Value) -> str:
    """The classes of a cell."""
    if column.is_span and value is not None:
        return f"{column_css(column)} span"
    brief = column.kind == "name" and len(column.text(value)) <= _BRIEF
    return f"{column_css(column)} brief" if brief else column_css(column)


def column_css(column: Column) -> str:
    """The classes of a column."""
    if column.is_moment:
        return "number moment"
    return "number" if column.numeric else column.kind


class Tick(NamedTuple):
    """A place in percent along an axis, and its label."""

    at: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Shapes over time; ``mark`` is a level with a name, such as the capacity."""

    title: str
    shapes: Sequence[Drawn]
    tips: Sequence[Drawn]
    levels: Sequence[Tick]
    mark: Tick | None = None
    low: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Rows or panels; ``legend`` are pairs of a class and a word, ``ticks`` stand below."""

    reading: str
    legend: Sequence[tuple[str, str]]
    rows: Sequence[Drawn] = ()
    panels: Sequence[Panel] = ()
    ticks: Sequence[Tick] = ()
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
        shown_ones = report.forecasts[:MOST_FORECASTS]
        starts = [week.start_s for one in shown_ones for week in one.weeks]
        found["forecast"] = Plot(
            reading=reading("forecast", report),
            legend=(("measured", "measured"), ("expected", "expected"), ("band", "80 % and 95 %")),
            panels=[_forecast(one, min(starts), max(starts)) for one in shown_ones],
            ticks=_dates(min(starts), max(starts)),
        )
    return found


def _split(report: CapacityReport, shares: Sequence[Share]) -> Plot:
    """Stacked bars by outcome, the total at their end."""
    top = _ROOM * max(share.hours.allocated for share in shares) or 1.0
    rows: list[Drawn] = []
    for share in shares[:MOST_BARS]:
        parts = [(name, getattr(share.hours, name)) for name in _PARTS]
        bars = [
            {
                "css": name,
                "width": 100 * hours / top,
                "tip": f"{shown(share.key)}: {amount(hours)} GPU-hours {name}",
            }
            for name, hours in parts
            if hours > 0
        ]
        label = amount(share.hours.allocated)
        rows.append({"name": shown(share.key, 40), "bars": bars, "label": label})
    return Plot(
        reading=reading("split", report, shares),
        legend=_legend(report),
        rows=rows,
        ticks=[tick for tick in _ticks(top) if tick.at <= _LAST_LABEL],
        axis="GPU-hours",
    )


def _waits(report: CapacityReport) -> Plot:
    """From the least wait to the median, and on to 95 %."""
    top = _ROOM * _decades(max(wait.p95_s for wait in report.waits)) or 1.0
    rows: list[Drawn] = []
    for wait in report.waits:
        tip = (
            f"{wait.size} GPUs, {wait.jobs:,} jobs: median {rough(wait.median_s)}, 95 % within "
            f"{rough(wait.p95_s)}, longest {rough(wait.longest_s)}"
        )
        median, high = 100 * _decades(wait.median_s) / top, 100 * _decades(wait.p95_s) / top
        bars = [
            {"css": css, "width": width, "tip": tip}
            for css, width in (("completed", median), ("lost", high - median))
        ]
        name = f"{wait.size} GPU{'' if wait.size == '1' else 's'}"
        rows.append({"name": name, "bars": bars, "label": rough(wait.p95_s)})
    within = [Tick(100 * _decades(s) / top, rough(s)) for s in _WAIT_TICKS_S]
    ticks = [tick for tick in within if tick.at <= _LAST_LABEL]
    return Plot(
        reading=reading("waits", report),
        legend=(("completed", "to the median"), ("lost", "on to 95 %")),
        rows=rows,
        ticks=ticks[:: math.ceil(len(ticks) / MOST_TICKS)] if ticks else (),
        axis="wait (logarithmic)",
    )


def _use(report: CapacityReport) -> Plot:
    """GPUs in use by outcome under the capacity; below, GPUs waited for."""
    edges = [*(slot.start_s for slot in report.use), report.period.until_s]
    x = _axis(edges[0], edges[-1])
    slots = [
        (slot, (b - a) / 3600) for slot, (a, b) in zip(report.use, pairwise(edges), strict=True)
    ]
    first, length_h = slots[0]
    gpus = None if first.capacity is None else first.capacity / length_h
    top = _ROOM * max(*(slot.hours.allocated / h for slot, h in slots), gpus or 0.0, 1.0)
    none = [0.0] * len(slots)
    base, shapes, tips = none, [], []
    for name in _PARTS:
        parts_h = [getattr(slot.hours, name) / hours for slot, hours in slots]
        tops = [low + part for low, part in zip(base, parts_h, strict=True)]
        shapes.append({"css": f"area {name}", "path": _steps(x, edges, base, tops, top)})
        base = tops
    for (slot, hours), (begin, end) in zip(slots, pairwise(edges), strict=True):
        parts = ", ".join(f"{amount(getattr(slot.hours, n) / hours)} {n}" for n in _PARTS)
        text = f"{moment(slot.start_s)} UTC, GPUs: {parts}; {amount(slot.waiting_gpus)} waited for"
        tips.append({"x": x(begin), "width": x(end) - x(begin), "text": text})
    waiting = [slot.waiting_gpus for slot, _ in slots]
    most = _ROOM * max(*waiting, 1.0)
    held = Panel(
        title="GPUs held by jobs",
        shapes=shapes,
        tips=tips,
        levels=_ticks(top),
        mark=None if gpus is None else Tick(100 * gpus / top, f"all {amount(gpus)} GPUs"),
    )
    waited = Panel(
        title="GPUs waited for",
        shapes=[{"css": "area waiting", "path": _steps(x, edges, none, waiting, most)}],
        tips=tips,
        levels=_ticks(most),
        low=True,
    )
    return Plot(
        reading=reading("use", report),
        legend=_legend(report),
        ticks=_dates(edges[0], edges[-1]),
        panels=(held, waited),
    )


def _forecast(one: DemandForecast, from_s: float, to_s: float) -> Panel:
    """Demand by week with interval and capacity."""
    past = [(week.start_s, week.measured) for week in one.weeks if week.measured is not None]
    coming = [(week.start_s, week.expected) for week in one.weeks if week.expected is not None]
    likely = [(week.start_s, week.likely) for week in one.weeks if week.likely is not None]
    middle = [(start_s, span.median) for start_s, span in coming]
    highest = [hours for _, hours in past] + [span.high for _, span in coming]
    top = _ROOM * max(*highest, one.capacity or 0.0, 1.0)
    x = _axis(from_s, to_s)
    half = (x(from_s + 7 * DAY_S)) / 2
    bands = [
        [(at, span.low) for at, span in spans] + [(at, span.high) for at, span in reversed(spans)]
        for spans in (coming, likely)
    ]
    paths = [("area band", _line(x, band, top) + ("Z" if band else "")) for band in bands]
    paths += [("line measured", _line(x, past, top)), ("line expected", _line(x, middle, top))]
    return Panel(
        title=f"{shown(one.key, 40)}: GPU-hours a week",
        shapes=[{"css": css, "path": path} for css, path in paths],
        tips=[
            {
                "x": x(at) - half,
                "width": 2 * half,
                "text": f"week from {day(at)}: {amount(value)} GPU-hours",
            }
            for at, value in past + middle
        ],
        levels=_ticks(top),
        mark=None if one.capacity is None else Tick(100 * one.capacity / top, "capacity"),
    )


def _axis(from_s: float, to_s: float) -> Callable[[float], float]:
    """Places from 0 to 1000 of moments between two."""
    length_s = max(1.0, to_s - from_s)
    return lambda at_s: round(1000 * (at_s - from_s) / length_s, 2)


def _steps(
    x: Callable[[float], float],
    edges: Sequence[float],
    base: Sequence[float],
    tops: Sequence[float],
    top: float,
) -> str:
    """Bars from ``base`` to ``tops`` between the edges."""
    return "".join(
        f"M{x(begin)} {_y(low, top)}V{_y(high, top)}H{x(end)}V{_y(low, top)}Z"
        for (begin, end), low, high in zip(pairwise(edges), base, tops, strict=True)
        if high > low
    )


def _line(x: Callable[[float], float], points: Points, top: float) -> str:
    places = " L".join(f"{x(at)} {_y(value, top)}" for at, value in points)
    return f"M{places}" if places else ""


def _y(value: float, top: float) -> float:
    return round(100 - 100 * value / top, 2)


def _decades(wait_s: float) -> float:
    return math.log10(max(wait_s, LEAST_WAIT_S) / LEAST_WAIT_S)


def _ticks(top: float) -> list[Tick]:
    """At most MOST_TICKS round values from 0 to ``top``."""
    least = top / MOST_TICKS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)
    return [Tick(100 * i * step / top, f"{i * step:,g}") for i in range(int(top / step) + 1)]


def _dates(from_s: float, to_s: float) -> list[Tick]:
    """At most MOST_TICKS midnights."""
    step_s = DAY_S * max(1, math.ceil((to_s - from_s) / DAY_S / MOST_TICKS))
    first_s = math.ceil(from_s / DAY_S) * DAY_S
    x = _axis(from_s, to_s)
    found = [first_s + i * step_s for i in range(int((to_s - first_s) / step_s) + 1)]
    return [tick for tick in (Tick(x(at) / 10, day(at)) for at in found) if tick.at <= _LAST_LABEL]


def _legend(report: CapacityReport) -> list[tuple[str, str]]:
    """Outcomes of the report; that of an unknown state only where there is one."""
    return [(name, name) for name in _PARTS if name != "unknown" or report.hours.unknown]
