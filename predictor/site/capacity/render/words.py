"""What a report says in sentences: its figures, what to do first, and what each plot shows.

The sentences are templates in ``words.yaml``.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import yaml

from ....optional import needs
from ....units import MISSING
from ..report_data import CapacityReport, Opportunity, OpportunityKind, Range, total
from . import text

if TYPE_CHECKING:
    from jinja2 import Environment

MOST = 5
_DERIVED = ("idle", "idle_wanted", "wall_time_accuracy")
_FUNCTIONS = {name: getattr(text, name) for name in text.WRITERS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """One figure: ``detail`` puts it in proportion, ``definition`` says what was counted."""

    label: str
    value: str
    detail: str
    definition: str
    evidence: str


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
            saving = Saving(
                kind=kind,
                gpu_hours=sum(row.gpu_hours for row in rows),
                saved=total(row.saved_gpu_hours for row in rows),
                rows=len(rows),
                first=max(rows, key=lambda row: row.saved_gpu_hours.median),
            )
            found.append(saving)
    return tuple(sorted(found, key=lambda saving: -saving.saved.median))


def findings(report: CapacityReport) -> tuple[Finding, ...]:
    """The largest of lost hours, savings and GPUs idle while jobs waited, the largest first."""
    words = templates()
    found = [
        Finding(
            gpu_hours=attrgetter(one["of"])(report) or 0.0,
            title=one["title"],
            what=filled(one["what"], report),
        )
        for one in words["findings"]
    ]
    found += [
        Finding(
            gpu_hours=each.saved.median,
            title=words["savings"][each.kind],
            what=filled(words["saving"], report, it=each),
            command=each.first.command,
        )
        for each in savings(report)
    ]
    found.sort(key=lambda finding: -finding.gpu_hours)
    return tuple(finding for finding in found[:MOST] if finding.gpu_hours > 0)


def reading(name: str, report: CapacityReport, it: Sequence[object] = ()) -> str:
    """One line under a plot: what its data say."""
    return filled(templates()["readings"][name], report, it=it)


def lead(section: str, report: CapacityReport) -> str:
    """What is said before the tables of a section; empty for nothing."""
    return filled(templates()["leads"].get(section, ""), report)


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
def templates() -> Mapping[str, Any]:
    """The sentences."""
    return dict(yaml.load(read("words.yaml"), yaml.CSafeLoader))


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
