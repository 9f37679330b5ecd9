"""The figures at the top of a report."""

from __future__ import annotations

from dataclasses import dataclass

from ....units import MISSING
from ..report_data import CapacityReport
from .findings import savings
from .text import amount, counted, duration_span, rough, share, shown, span


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """One figure: ``detail`` puts it in proportion, ``definition`` says what was counted."""

    label: str
    value: str
    detail: str
    definition: str
    evidence: str


def headlines(report: CapacityReport) -> tuple[Headline, ...]:
    """The five figures, in the order of the report."""
    return _used(report), _lost(report), _wait(report), _backlog(report), _saving(report)


def _used(report: CapacityReport) -> Headline:
    allocated, capacity = report.hours.allocated, report.capacity
    detail = f"{amount(allocated)} GPU-hours held by jobs"
    if report.idle is not None:
        detail = f"{amount(allocated)} of {amount(capacity)} GPU-hours; {amount(report.idle)} idle"
    return Headline(
        label="GPU time in use",
        value=share(allocated, capacity),
        detail=detail,
        definition="GPU-hours that jobs held, over all GPUs times the hours of the period.",
        evidence="measured",
    )


def _lost(report: CapacityReport) -> Headline:
    hours = report.hours
    return Headline(
        label="GPU time lost",
        value=share(hours.lost, hours.allocated),
        detail=(
            f"{amount(hours.lost)} GPU-hours: failed {amount(hours.failed)}, timed out"
            f" {amount(hours.timed_out)}, preempted {amount(hours.preempted)}"
        ),
        definition="GPU-hours of jobs whose work was thrown away, over those that jobs held.",
        evidence="measured",
    )


def _wait(report: CapacityReport) -> Headline:
    worst = max(report.waits, key=lambda w: w.p95_s, default=None)
    value, detail = MISSING, "no job started in the period"
    if worst is not None:
        value = rough(worst.p95_s)
        noun = "GPU" if worst.size == "1" else "GPUs"
        detail = f"jobs on {worst.size} {noun} (median {rough(worst.median_s)})"
    return Headline(
        label="Longest wait, 95 % within",
        value=value,
        detail=detail,
        definition="From submission to start, of the size of job that waited longest.",
        evidence="measured",
    )


def _backlog(report: CapacityReport) -> Headline:
    drained = [b for b in report.backlog if b.drain_s is not None]
    last = max(drained, key=lambda b: b.drain_s.median if b.drain_s else 0.0, default=None)
    known = sum(b.gpu_hours.median for b in report.backlog)
    unknown = sum(b.unknown_gpu_hours for b in report.backlog)
    detail = "nothing waits, or the queue was not read"
    if report.backlog:
        jobs = counted(sum(b.jobs for b in report.backlog), "job")
        detail = f"{jobs} need {amount(known)} GPU-hours"
        detail += f" and at most {amount(unknown)} more" if unknown else ""
        detail += f"; {shown(last.gpu_type, 30)} takes longest" if last else ""
    return Headline(
        label="Queue drained in",
        value=rough(last.drain_s.median) if last and last.drain_s else MISSING,
        detail=detail + (f", {duration_span(last.drain_s)}" if last else ""),
        definition="When the last waiting job will have ended, of the slowest GPU type.",
        evidence="predicted",
    )


def _saving(report: CapacityReport) -> Headline:
    best = next(iter(savings(report)), None)
    value, detail = MISSING, "no change found that saves GPU-hours"
    if best is not None:
        value = f"{amount(best.saved.median)} GPU-h"
        detail = f"{best.title} {span(best.saved)} GPU-hours of {amount(best.gpu_hours)}"
    return Headline(
        label="Largest saving found",
        value=value,
        detail=detail,
        definition="GPU-hours that jobs would have needed less after one kind of change.",
        evidence="predicted",
    )
