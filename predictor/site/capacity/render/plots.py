"""The plots of a report, each with its reading in one line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..report_data import CapacityReport, Dimension
from . import paint, readings
from .ink import Canvas, draw

MOST_BARS = 10
MOST_FORECASTS = 4
ROW_IN = 0.36


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """``wide`` and ``narrow`` are SVG for a screen and a phone; ``table`` names its data."""

    table: str
    reading: str
    wide: str
    narrow: str


def plots(report: CapacityReport) -> dict[str, Plot]:
    """Those with something to show, by the name of their table."""
    found = (
        _plot("use", 3.6, report.use, paint.use, readings.use, report),
        _split(report, Dimension.GPU_TYPE),
        _split(report, Dimension.ACCOUNT),
        _rows("waits", report.waits, paint.waits, readings.waits, report),
        _plot(
            "forecast",
            0.4 + 1.9 * min(len(report.forecasts), MOST_FORECASTS),
            report.forecasts,
            paint.forecasts,
            readings.forecast,
            report,
        ),
    )
    return {plot.table: plot for plot in found if plot is not None}


def _split(report: CapacityReport, dimension: Dimension) -> Plot | None:
    shares = report.splits.get(dimension, ())
    return _rows(
        f"by-{dimension.value.replace('_', '-')}",
        shares,
        lambda canvas, _: paint.split(canvas, shares[:MOST_BARS]),
        lambda _: readings.split(shares, dimension),
        report,
    )


def _rows(
    name: str,
    rows: object,
    painter: Callable[[Canvas, CapacityReport], None],
    reading: Callable[[CapacityReport], str],
    report: CapacityReport,
) -> Plot | None:
    count = min(len(rows), MOST_BARS) if isinstance(rows, (tuple, list)) else 0
    return _plot(name, 1.0 + ROW_IN * count, rows, painter, reading, report)


def _plot(
    name: str,
    height_in: float,
    rows: object,
    painter: Callable[[Canvas, CapacityReport], None],
    reading: Callable[[CapacityReport], str],
    report: CapacityReport,
) -> Plot | None:
    if not rows:
        return None
    wide, narrow = (
        draw(name, height_in, lambda canvas: painter(canvas, report), narrow=is_narrow)
        for is_narrow in (False, True)
    )
    return Plot(table=name, reading=reading(report), wide=wide, narrow=narrow)
