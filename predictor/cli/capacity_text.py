"""What the capacity commands print: the report in short, two replays, ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..units import count, duration, percent, short
from .console import show_table

if TYPE_CHECKING:
    from ..site.capacity.report_data import CapacityReport, Range, Scenario, WhatIf

SHOWN_ROWS = 10


def show(found: CapacityReport) -> None:
    """The report in short: hours, waits, the largest opportunities, the change."""
    hours, origin = found.hours, found.origin
    sample = ", a generated sample" if origin.sample else ""
    click.echo(
        f"{count(origin.jobs)} jobs of {origin.name}{sample}, {found.period.hours / 24:.3g} days"
    )
    for aside in origin.set_aside:
        click.echo(f"  left out, {aside.reason}: {count(aside.jobs)}, such as {aside.example}")
    for note in found.notes:
        click.echo(f"  {note}")
    click.echo()
    lines = {
        "allocated": hours.allocated,
        "completed": hours.completed,
        "running": hours.running,
        "cancelled": hours.cancelled,
        "failed": hours.failed,
        "timed out": hours.timed_out,
        "preempted": hours.preempted,
        "idle": found.idle,
    }
    whole = found.capacity or hours.allocated
    show_table(
        ("GPU-hours", "", "share"),
        [
            (name, count(value), percent(None if value is None or not whole else value / whole))
            for name, value in lines.items()
        ],
    )
    click.echo()
    show_table(
        ("wait by GPUs", "jobs", "median", "95 %"),
        [(w.size, count(w.jobs), _time(w.median_s), _time(w.p95_s)) for w in found.waits],
    )
    if found.opportunities:
        click.echo()
        show_table(
            ("opportunity", "jobs", "GPU-hours", "saved (95 %)"),
            [
                (
                    f"{o.kind.words}: {o.what}",
                    count(o.jobs),
                    count(o.gpu_hours),
                    span(o.saved_gpu_hours),
                )
                for o in found.opportunities[:SHOWN_ROWS]
            ],
        )
    if found.whatif is not None:
        click.echo()
        show_whatif(found.whatif, found.currency or "")


def show_whatif(found: WhatIf, currency: str) -> None:
    """Two replays side by side, and how far to trust them."""
    before, after = found.baseline, found.changed
    rows = [
        (name, *(_cell(value, one, currency) for one in (before, after)))
        for name, value in _FIGURES.items()
    ]
    show_table(("replayed", "as it was", found.change), rows)
    total = before.jobs + before.never_started
    click.echo(
        f"\nreally waited on average: {duration(found.history_mean_wait_s)}; "
        f"{percent(found.unmoved_jobs / total)} of the jobs could not be predicted and stay as "
        "they were"
    )


_FIGURES = {
    "jobs": "jobs",
    "jobs with nowhere to run": "never_started",
    "mean wait": "mean_wait_s",
    "median wait": "median_wait_s",
    "95 % wait": "p95_wait_s",
    "in use": "utilisation",
    "GPU-hours": "gpu_hours",
    "energy (estimate)": "kwh",
    "cost": "cost",
}


def _cell(name: str, one: Scenario, currency: str) -> str:
    value = getattr(one, name)
    if value is None:
        return "-"
    if name.endswith("_s"):
        return _time(value)
    if name == "utilisation":
        return percent(value)
    unit = {"kwh": " kWh", "cost": f" {currency}"}.get(name, "")
    return count(value) + unit


def span(found: Range) -> str:
    """A median with its range."""
    if found.low == found.high:
        return short(found.median)
    return f"{short(found.median)} ({short(found.low)} .. {short(found.high)})"


def times(found: Range | None) -> str:
    """A median with its range, of seconds."""
    if found is None:
        return "-"
    if found.low == found.high:
        return _time(found.median)
    return f"{_time(found.median)} ({_time(found.low)} .. {_time(found.high)})"


def _time(seconds: float) -> str:
    return duration(seconds) if seconds >= 1 else "none"
