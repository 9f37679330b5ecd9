"""What to do first: the largest amounts of GPU time that could be had back, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..report_data import CapacityReport, Opportunity, OpportunityKind, Range
from .text import amount, counted, shown, span

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
