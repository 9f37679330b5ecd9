"""What a report says: how figures and names are written in every form of it, and its sentences.

Those are its figures, what to do first, and what each plot shows: templates in ``words.yaml``.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cache, partial
from importlib.resources import files
from operator import attrgetter
from typing import TYPE_CHECKING

from profiles.storage import shipped_yaml

from ....optional import needs
from ....units import MISSING, percent
from ...history.ingest import Period
from ..report_data import CapacityReport, Opportunity, OpportunityKind, Range, total

if TYPE_CHECKING:
    from jinja2 import Environment

templates = partial(shipped_yaml, "words.yaml", __file__)
MOST = 5
_DERIVED = ("idle", "idle_wanted", "wall_time_accuracy")
LONGEST_NAME = 80
# Characters that would move, hide or turn round what follows them.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """One figure: ``detail`` puts it in proportion, ``definition`` says what was counted."""

    label: str
    value: str
    detail: str
    definition: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What could be had back, in GPU-hours, and how."""

    gpu_hours: float
    title: str
    what: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Saving:
    """All opportunities of one kind, which never count one job twice; the largest is ``first``."""

    kind: OpportunityKind
    gpu_hours: float
    saved: Range
    rows: int
    first: Opportunity


def headlines(report: CapacityReport) -> tuple[Headline, ...]:
    """The five figures, in the order of the report; of one person those that are known."""
    titles = templates()["savings"]
    drained = [b for b in report.backlog if b.drain_s is not None]
    last = max(drained, key=lambda b: b.drain_s.median if b.drain_s else 0.0, default=None)
    more = {"savings": savings(report), "titles": titles, "last_drained": last}
    found = [
        Headline(**{name: filled(words, report, **more) for name, words in one.items()})
        for one in templates()["headlines"]
    ]
    return tuple(one for one in found if one.value != MISSING or not report.person)


def savings(report: CapacityReport) -> tuple[Saving, ...]:
    """By kind of change, the largest first."""
    found = []
    for kind in OpportunityKind:
        rows = [each for each in report.opportunities if each.kind is kind]
        if rows:
            hours, saved = sum(row.gpu_hours for row in rows), [r.saved_gpu_hours for r in rows]
            first = max(rows, key=lambda row: row.saved_gpu_hours.median)
            found.append(Saving(kind, hours, total(saved), len(rows), first))
    return tuple(sorted(found, key=lambda saving: -saving.saved.median))


def findings(report: CapacityReport) -> tuple[Finding, ...]:
    """The largest of lost hours, savings and GPUs idle while jobs waited, the largest first."""
    words = templates()
    found = [
        Finding(attrgetter(one["of"])(report) or 0.0, one["title"], filled(one["what"], report))
        for one in words["findings"]
    ]
    for each in savings(report):
        what = filled(words["saving"], report, it=each)
        title, command = words["savings"][each.kind], each.first.command
        found.append(Finding(each.saved.median, title, what, command))
    found.sort(key=lambda finding: -finding.gpu_hours)
    return tuple(finding for finding in found[:MOST] if finding.gpu_hours > 0)


def reading(name: str, report: CapacityReport, it: Sequence[object] = ()) -> str:
    """One line under a plot: what its data say."""
    return filled(templates()["readings"][name], report, it=it)


def said(group: str, part: int, it: object, report: CapacityReport) -> str:
    """What is said of a row: by the value that its group goes by, else in other words."""
    told = templates()[group]
    words = told["words"].get(getattr(it, told["by"]), told["other"])
    return filled(words[part], report, it=it)


def filled(words: str, report: CapacityReport, **more: object) -> str:
    """A template over a report in one line of plain text."""
    known = {one.name: getattr(report, one.name) for one in fields(report)}
    known |= {name: getattr(report, name) for name in _DERIVED}
    return " ".join(environment().from_string(words).render(known | more).split())


@cache
def read(name: str) -> str:
    """A file of this package."""
    return files(__package__).joinpath(name).read_text("utf-8")


@cache
def environment(*, escaped: bool = False) -> Environment:
    """Jinja with the functions of text; raises NotInstalledError without it."""
    with needs("report"):
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    found = Environment(
        autoescape=escaped,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(read),
    )
    found.globals |= _FUNCTIONS | {"MISSING": MISSING, "quote": shlex.quote}
    return found


def shown(name: str, longest: int = LONGEST_NAME) -> str:
    """A name as it is safe to read: control and direction marks spelt out, the middle cut out."""
    text = _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", name[: 4 * longest])
    if len(name) <= longest and len(text) <= longest:
        return text
    tail = "" if len(name) > 4 * longest else text[-(longest // 4) :]
    return text[: longest - len(tail) - 1] + "…" + tail


def amount(value: float | None) -> str:
    """``0.42``, ``4.2``, ``42`` or ``4,200``; as exact as a reader needs."""
    if value is None or not math.isfinite(value):
        return MISSING
    size = abs(value)
    decimals = 0 if size >= 9.95 or size == 0 else 1 if size >= 0.995 else 2
    return f"{value:,.{decimals}f}"


def span(found: Range | None) -> str:
    """``42 (30 to 61)``: median and interval; ``42`` where it is no estimate."""
    if found is None:
        return MISSING
    if found.low == found.high:
        return amount(found.median)
    return f"{amount(found.median)} ({amount(found.low)} to {amount(found.high)})"


def rough(seconds: float | None) -> str:
    """A duration in its largest unit, with the next one where that matters: ``3 d 4 h``."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    if seconds < 0:
        return f"-{rough(-seconds)}"
    minutes = round(seconds / 60)
    if minutes < 1:
        return "0 min" if seconds < 1 else "under 1 min"
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    if days >= 10:
        return f"{round(seconds / 86400):,} d"
    if days:
        return f"{days} d {hours} h" if hours else f"{days} d"
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{minutes} min"


def duration_span(found: Range | None) -> str:
    """``3 h (2 h to 1 d 4 h)``."""
    if found is None:
        return MISSING
    return f"{rough(found.median)} ({rough(found.low)} to {rough(found.high)})"


def moment(unix_s: float | None) -> str:
    """``2026-11-16 08:00`` in UTC."""
    return MISSING if unix_s is None else _utc(unix_s).strftime("%Y-%m-%d %H:%M")


def day(unix_s: float | None) -> str:
    """``2026-11-16`` in UTC."""
    return MISSING if unix_s is None else _utc(unix_s).strftime("%Y-%m-%d")


def iso(unix_s: float) -> str:
    """``2026-11-16T08:00:00Z``."""
    return _utc(unix_s).strftime("%Y-%m-%dT%H:%M:%SZ")


def period(found: Period) -> str:
    """``2026-11-02 to 2026-11-16 (14 d)``; with hours where it does not begin at midnight."""
    since_s, until_s = found.since_s, found.until_s
    form = moment if since_s % 86400 or until_s % 86400 else day
    return f"{form(since_s)} to {form(until_s)} UTC ({rough(until_s - since_s)})"


def share(part: float, whole: float | None) -> str:
    """A part in percent of the whole."""
    return percent(part / whole) if whole else MISSING


def without_password(url: str) -> str:
    """A URL without its user and password."""
    return re.sub(r"://[^/]*@", "://", url)


def counted(number: int, noun: str) -> str:
    """``1 job``, ``1,200 jobs``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _utc(unix_s: float) -> datetime:
    return datetime.fromtimestamp(unix_s, UTC)


# What templates may call.
_FUNCTIONS = {
    function.__name__: function
    for function in (
        *(amount, counted, day, duration_span, moment, percent, period, rough, share),
        *(shown, span, without_password),
    )
}
