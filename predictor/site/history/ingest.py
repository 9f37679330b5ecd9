"""Filling the history from a stream of records: in batches, with a place to go on from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field

from .run import JobState, Run
from .store import Cursor, History, Merged

BATCH = 5000  # runs of one transaction, about 20 MB
REASONS_KEPT = 5
REASONS_COUNTED = 20
OTHER_REASONS = "other reasons"
FIRST_S = 30 * 86400.0  # of a source that was never read
_REASON_CHARS = 200


@dataclass(frozen=True, slots=True)
class Unread:
    """A record that cannot be read, and why; ``name`` is what its source calls it."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A record that is none of ours, such as a job without GPUs."""

    reason: str


@dataclass(frozen=True, slots=True)
class Noted:
    """Of the run just given something could not be read, and counts as unknown."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Through:
    """Everything that ended before ``at_s`` (Unix seconds) has been given."""

    at_s: float


Item = Run | Unread | Noted | LeftOut | Through


@dataclass(slots=True)
class Tally:
    """What became of the records of a source.

    ``added`` are the runs by what the store had of them before, ``states`` by how they ended,
    ``noted`` counts by reason what could not be read of them. ``unread_reasons`` counts the
    ``unread`` by reason, those after the first REASONS_COUNTED together; ``reasons`` are the first
    few in full. ``at_s`` is how far the source was read, ``cursor_s`` where the cursor stands.
    """

    added: Merged = field(default_factory=Merged)
    unread: int = 0
    unread_reasons: Counter[str] = field(default_factory=Counter)
    states: Counter[JobState] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)
    reasons: list[str] = field(default_factory=list)
    at_s: float | None = None
    cursor_s: float | None = None

    @property
    def runs(self) -> int:
        """Runs that the store took."""
        return self.states.total()

    @property
    def records(self) -> int:
        """All records that were looked at."""
        return self.runs + self.unread + self.left_out.total()

    def skip(self, record: Unread | Noted) -> None:
        """Count a record that cannot be read, or of which something cannot."""
        reasons = self.noted if isinstance(record, Noted) else self.unread_reasons
        self.unread += isinstance(record, Unread)
        known = record.reason in reasons or len(reasons) < REASONS_COUNTED
        reasons[record.reason[:_REASON_CHARS] if known else OTHER_REASONS] += 1
        if len(self.reasons) < REASONS_KEPT:
            self.reasons.append(f"{record.name}: {record.reason}"[:_REASON_CHARS])

    def as_dict(self) -> dict[str, object]:
        """As plain values for JSON."""
        return {
            "records": self.records,
            **asdict(self.added),
            "states": {state.value: number for state, number in self.states.most_common()},
            "left_out": dict(self.left_out.most_common()),
            "noted": dict(self.noted.most_common()),
            "unread": self.unread,
            "unread_reasons": dict(self.unread_reasons.most_common()),
            "reasons": self.reasons,
            "cursor_s": self.cursor_s,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """From ``since_s`` up to, not including, ``until_s`` (Unix seconds)."""

    since_s: float
    until_s: float

    @property
    def hours(self) -> float:
        """Length in hours."""
        return (self.until_s - self.since_s) / 3600


def period(
    at_s: float | None, now_s: float, *, since_s: float | None = None, overlap_s: float
) -> Period:
    """From ``since_s``, else from ``overlap_s`` before the cursor ``at_s``, until now.

    Accounting may hear late of an end: the overlap is how late. Without a cursor it is
    FIRST_S from now. It tells ends in whole seconds, so the one that has begun is left for later.
    """
    now_s = float(math.floor(now_s))
    if since_s is None:
        since_s = now_s - FIRST_S if at_s is None else at_s - overlap_s
    return Period(since_s=since_s, until_s=now_s)


def fill(
    history: History,
    items: Iterable[Item],
    *,
    cursor: str | None = None,
    since_s: float = 0.0,
    told: Callable[[Tally], None] = lambda _: None,
) -> Tally:
    """Add every run, and move the cursor of that name to where the source is through.

    A batch is one transaction, and the cursor moves in that of the last run before it: whatever
    ends the program, the next one begins at or before the first run that is missing. The cursor
    never moves back, nor over a gap: it stays where the items begin at a later ``since_s``.
    ``told`` hears of every batch. Raises what the source and the store raise.
    """
    tally, batch = Tally(), list[Run]()
    if cursor is not None:
        tally.cursor_s = history.cursor(cursor)
        if tally.cursor_s is not None and since_s > tally.cursor_s:
            cursor = None

    def write(reached: Cursor | None = None) -> None:
        if batch or reached is not None:
            tally.added += history.add(batch, cursor=reached)
            tally.states.update(run.ended.state for run in batch)
            batch.clear()
        told(tally)

    for item in items:
        if isinstance(item, Run):
            batch.append(item)
            if len(batch) >= BATCH:
                write()
        elif isinstance(item, LeftOut):
            tally.left_out[item.reason] += 1
        elif isinstance(item, Unread | Noted):
            tally.skip(item)
        else:
            tally.at_s = item.at_s
            if cursor is None or item.at_s <= (
                -math.inf if tally.cursor_s is None else tally.cursor_s
            ):
                write()
            else:
                tally.cursor_s = item.at_s
                write(Cursor(cursor, item.at_s))
    write()
    return tally
