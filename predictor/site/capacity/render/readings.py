"""One line under each plot: what its data say, computed from them."""

from __future__ import annotations

from collections.abc import Sequence

from ..report_data import CapacityReport, DemandForecast, Dimension, Share
from .tables import BY
from .text import amount, counted, day, rough, share, shown


def use(report: CapacityReport) -> str:
    """Use of the period, its fullest slot and what stood idle while jobs waited."""
    busiest = max(report.use, key=lambda u: u.hours.allocated)
    held = share(report.hours.allocated, report.capacity)
    first = (
        f"Jobs held {held} of all GPU-hours"
        if report.capacity
        else (f"Jobs held {amount(report.hours.allocated)} GPU-hours")
    )
    if busiest.capacity:
        top = share(busiest.hours.allocated, busiest.capacity)
        first += f", at most {top} (from {day(busiest.start_s)})"
    idle = report.idle_wanted
    wanted = f"{first}; up to {amount(idle)} were idle while jobs waited for that type."
    return wanted if idle else f"{first}."


def split(shares: Sequence[Share], dimension: Dimension) -> str:
    """The largest share, and where most was lost."""
    total = sum(s.hours.allocated for s in shares)
    worst = max(shares, key=lambda s: s.hours.lost)
    kind = BY[dimension]
    text = f"{shown(shares[0].key, 40)} had {share(shares[0].hours.allocated, total)} of GPU-hours"
    if worst.hours.lost:
        lost = share(worst.hours.lost, worst.hours.allocated)
        text += f"; most were lost by {shown(worst.key, 40)}: {amount(worst.hours.lost)},"
        text += f" {lost} of its own"
    hidden = len(shares) - 10
    more = f" The {counted(len(shares), _noun(kind))} are in the table." if hidden > 0 else ""
    return f"{text}.{more}"


def waits(report: CapacityReport) -> str:
    """The size that waits longest against the one that waits least."""
    longest = max(report.waits, key=lambda w: w.p95_s)
    least = min(report.waits, key=lambda w: w.p95_s)
    text = f"Of jobs on {longest.size} GPUs 95 % start within {rough(longest.p95_s)}"
    return (
        f"{text}, on {least.size} within {rough(least.p95_s)}."
        if longest is not least
        else f"{text}."
    )


def forecast(report: CapacityReport) -> str:
    """What saturates first."""
    full = [(f.saturates_s, f.key) for f in report.forecasts if f.saturates_s is not None]
    if not full:
        may = [shown(f.key, 40) for f in report.forecasts if _may_exceed(f)]
        text = "No demand is expected to exceed its capacity in the weeks shown"
        rest = f"; that of {', '.join(may[:3])} may, within the 95 % interval" if may else ""
        return f"{text}{rest}."
    when, key = min(full)
    return (
        f"{shown(key)} is the first whose demand exceeds its capacity: the week from {day(when)}."
    )


def _may_exceed(forecast: DemandForecast) -> bool:
    coming = [week.expected.high for week in forecast.weeks if week.expected is not None]
    return forecast.capacity is not None and max(coming, default=0.0) > forecast.capacity


def _noun(kind: str) -> str:
    return kind if kind.startswith("GPU") else kind.lower()
