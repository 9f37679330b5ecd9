"""What to do first: the largest amounts of GPU time that could be had back, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....units import MISSING
from ..report_data import CapacityReport, Opportunity, OpportunityKind, Range
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
    return _used(report), _lost(report), _wait(report), _backlog(report), _largest_saving(report)


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


def _largest_saving(report: CapacityReport) -> Headline:
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


MOST = 5
_TITLES = {
    OpportunityKind.MIXED_PRECISION: "FP32 jobs in mixed precision:",
    OpportunityKind.OTHER_GPU: "Jobs that another GPU type would serve:",
    OpportunityKind.FEWER_GPUS: "Jobs on more GPUs than they scale to:",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What could be had back, in GPU-hours, and how."""

    gpu_hours: float
    title: str
    what: str
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """All opportunities of one kind, which never count one job twice; the largest is ``first``."""

    title: str
    gpu_hours: float
    saved: Range
    rows: int
    first: Opportunity


def savings(report: CapacityReport) -> tuple[Saving, ...]:
    """By kind of change, the largest first."""
    found = []
    for kind, title in _TITLES.items():
        rows = [each for each in report.opportunities if each.kind is kind]
        if rows:
            found.append(_saving(title, rows))
    return tuple(sorted(found, key=lambda saving: -saving.saved.median))


def findings(report: CapacityReport) -> tuple[Finding, ...]:
    """The largest of lost hours, savings and GPUs idle while jobs waited, the largest first."""
    hours = report.hours
    found = [
        Finding(
            gpu_hours=hours.failed,
            title="Failed jobs:",
            what=(
                f"{amount(hours.failed)} GPU-hours of work were thrown away. Look at the accounts"
                " and users with most of them first."
            ),
        ),
        Finding(
            gpu_hours=hours.timed_out,
            title="Killed by their time limit:",
            what=(
                f"{amount(hours.timed_out)} GPU-hours of work were thrown away. Let limits be"
                " filled from predictions, and ask these users to write checkpoints."
            ),
        ),
        Finding(
            gpu_hours=hours.preempted,
            title="Preempted jobs:",
            what=(
                f"{amount(hours.preempted)} GPU-hours of work were thrown away. Ask for checkpoints"
                " on preemptible partitions."
            ),
        ),
        Finding(
            gpu_hours=report.idle_wanted or 0.0,
            title="Idle while jobs waited:",
            what=(
                f"Up to {amount(report.idle_wanted)} GPU-hours of GPUs were free while jobs waited"
                " for that type. Limits that are too long keep backfill from using them, and so"
                " does room kept for large jobs."
            ),
        ),
        *(_of_saving(each) for each in savings(report)),
    ]
    found.sort(key=lambda finding: -finding.gpu_hours)
    return tuple(finding for finding in found[:MOST] if finding.gpu_hours > 0)


def _saving(title: str, rows: Sequence[Opportunity]) -> Saving:
    spans = [row.saved_gpu_hours for row in rows]
    return Saving(
        title=title,
        gpu_hours=sum(row.gpu_hours for row in rows),
        rows=len(rows),
        saved=Range(
            low=sum(s.low for s in spans),
            median=sum(s.median for s in spans),
            high=sum(s.high for s in spans),
        ),
        first=max(rows, key=lambda row: row.saved_gpu_hours.median),
    )


def _of_saving(saving: Saving) -> Finding:
    first = saving.first
    less = (
        "would be free for others" if first.kind is OpportunityKind.OTHER_GPU else "could be saved"
    )
    return Finding(
        gpu_hours=saving.saved.median,
        title=saving.title,
        command=first.command,
        what=(
            f"{span(saving.saved)} GPU-hours of {amount(saving.gpu_hours)} {less}, in"
            f" {counted(saving.rows, 'group')} of like jobs. The largest is"
            f" {shown(first.what, 160).rstrip('.')}; ask {_people(first.users)} to try the command."
        ),
    )


def _people(users: tuple[str, ...]) -> str:
    named = ", ".join(shown(user, 30) for user in users[:3])
    more = len(users) - 3
    return (named or "their users") + (f" and {more} more" if more > 0 else "")
