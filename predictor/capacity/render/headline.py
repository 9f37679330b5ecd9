"""The figures at the top of a report, and what to do first."""

from __future__ import annotations

from dataclasses import dataclass

from ...units import MISSING
from ..report_data import Opportunity, OpportunityKind, Report
from .text import amount, counted, duration_span, rough, share, shown, span

MOST_ACTIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """One figure: ``detail`` puts it in proportion, ``definition`` says what was counted."""

    label: str
    value: str
    detail: str
    definition: str
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What could be had back, in GPU-hours, and how."""

    gpu_hours: float
    what: str
    command: str = ""


def headlines(report: Report) -> tuple[Headline, ...]:
    """The five figures, in the order of the report."""
    return _used(report), _lost(report), _wait(report), _backlog(report), _saving(report)


def actions(report: Report) -> tuple[Action, ...]:
    """The largest of lost hours, savings and GPUs idle while jobs waited, the largest first."""
    hours = report.hours
    found = [
        Action(gpu_hours=hours.failed, what=(
            f"Jobs that failed threw away {amount(hours.failed)} GPU-hours. Look at the accounts"
            " and users with most of them first.")),
        Action(gpu_hours=hours.timed_out, what=(
            f"Jobs killed by their time limit threw away {amount(hours.timed_out)} GPU-hours. Let"
            " limits be filled from predictions, and ask these users to write checkpoints.")),
        Action(gpu_hours=hours.preempted, what=(
            f"Preempted jobs threw away {amount(hours.preempted)} GPU-hours. Ask for checkpoints"
            " on preemptible partitions.")),
        _idle_while_waiting(report),
    ]  # fmt: skip
    best = largest_saving(report)
    if best is not None:
        found.append(_do(best))
    found.sort(key=lambda action: -action.gpu_hours)
    return tuple(action for action in found[:MOST_ACTIONS] if action.gpu_hours > 0)


def largest_saving(report: Report) -> Opportunity | None:
    """The opportunity with the most GPU-hours saved; shorter limits save none."""
    saving = (o for o in report.opportunities if o.kind is not OpportunityKind.SHORTER_LIMIT)
    return max(saving, key=lambda o: o.saved_gpu_hours.median, default=None)


def idle_while_waiting(report: Report) -> float:
    """GPU-hours idle in slots of time in which jobs waited: at most as many as waited."""
    total = 0.0
    ends = [u.start_s for u in report.use[1:]] + [report.period.until_s]
    for slot, end_s in zip(report.use, ends, strict=False):
        if slot.capacity is not None:
            free = max(0.0, slot.capacity - slot.hours.allocated)
            total += min(free, slot.waiting_gpus * (end_s - slot.start_s) / 3600)
    return total


def _used(report: Report) -> Headline:
    allocated, capacity = report.hours.allocated, report.capacity
    detail = f"{amount(allocated)} GPU-hours held by jobs"
    if report.idle is not None:
        detail = f"{amount(allocated)} of {amount(capacity)} GPU-hours; {amount(report.idle)} idle"
    return Headline(
        label="GPU time in use", value=share(allocated, capacity), detail=detail,
        definition="GPU-hours that jobs held, over all GPUs times the hours of the period.",
        evidence="measured",
    )  # fmt: skip


def _lost(report: Report) -> Headline:
    hours = report.hours
    return Headline(
        label="GPU time lost", value=share(hours.lost, hours.allocated),
        detail=(
            f"{amount(hours.lost)} GPU-hours: failed {amount(hours.failed)}, timed out"
            f" {amount(hours.timed_out)}, preempted {amount(hours.preempted)}"
        ),
        definition="GPU-hours of jobs whose work was thrown away, over those that jobs held.",
        evidence="measured",
    )  # fmt: skip


def _wait(report: Report) -> Headline:
    worst = max(report.waits, key=lambda w: w.p95_s, default=None)
    value, detail = MISSING, "no job started in the period"
    if worst is not None:
        value = rough(worst.p95_s)
        noun = "GPU" if worst.size == "1" else "GPUs"
        detail = f"jobs on {worst.size} {noun} (median {rough(worst.median_s)})"
    return Headline(
        label="Longest wait, 95 % within", value=value, detail=detail,
        definition="From submission to start, of the size of job that waited longest.",
        evidence="measured",
    )  # fmt: skip


def _backlog(report: Report) -> Headline:
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
        label="Queue drained in", value=rough(last.drain_s.median) if last and last.drain_s
        else MISSING, detail=detail + (f", {duration_span(last.drain_s)}" if last else ""),
        definition="When the last waiting job will have ended, of the slowest GPU type.",
        evidence="predicted",
    )  # fmt: skip


def _saving(report: Report) -> Headline:
    best = largest_saving(report)
    value, detail = MISSING, "no change found that saves GPU-hours"
    if best is not None:
        value = f"{amount(best.saved_gpu_hours.median)} GPU-h"
        detail = f"{best.kind.value}: {shown(best.what)}, {span(best.saved_gpu_hours)} GPU-hours"
    return Headline(
        label="Largest saving found", value=value, detail=detail,
        definition="GPU-hours that like jobs would have needed less after one change.",
        evidence="predicted",
    )  # fmt: skip


def _do(best: Opportunity) -> Action:
    saved = best.saved_gpu_hours
    return Action(
        gpu_hours=saved.median, command=best.command,
        what=(
            f"{shown(best.what).rstrip('.')}: {best.kind.value} would have saved"
            f" {span(saved)} GPU-hours"
            f" of {amount(best.gpu_hours)}. Ask {_people(best.users)} to try the command."
        ),
    )  # fmt: skip


def _people(users: tuple[str, ...]) -> str:
    named = ", ".join(shown(user, 30) for user in users[:3])
    more = len(users) - 3
    return (named or "their users") + (f" and {more} more" if more > 0 else "")


def _idle_while_waiting(report: Report) -> Action:
    hours = idle_while_waiting(report)
    return Action(gpu_hours=hours, what=(
        f"Up to {amount(hours)} GPU-hours stood idle while jobs waited. See which GPU types and"
        " partitions had room: limits that are too long, or requests for one type only, can keep"
        " backfill from using it."))  # fmt: skip
