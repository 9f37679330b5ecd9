"""A table of a report: what the page, the mail and the CSV files are all made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ....units import MISSING, percent
from ..report_data import Range
from . import text

Value = str | float | int | Range | None


class ColumnKind(StrEnum):
    """What a column holds, which says how it is written and sorted."""

    NAME = "name"
    TEXT = "text"
    CODE = "code"
    COUNT = "count"
    AMOUNT = "amount"
    SHARE = "share"
    DURATION = "duration"
    MOMENT = "moment"
    DAY = "day"
    SPAN = "span"
    DURATION_SPAN = "duration-span"


_FORMS: Mapping[ColumnKind, Callable[[Any], str]] = {
    ColumnKind.NAME: text.shown,
    ColumnKind.TEXT: lambda value: text.shown(value, 300),
    ColumnKind.CODE: lambda value: text.shown(value, 600),
    ColumnKind.COUNT: lambda value: f"{value:,}",
    ColumnKind.AMOUNT: text.amount,
    ColumnKind.SHARE: percent,
    ColumnKind.DURATION: text.rough,
    ColumnKind.MOMENT: text.moment,
    ColumnKind.DAY: text.day,
    ColumnKind.SPAN: text.span,
    ColumnKind.DURATION_SPAN: text.duration_span,
}
_WORDS = (ColumnKind.NAME, ColumnKind.TEXT, ColumnKind.CODE)


@dataclass(frozen=True, slots=True)
class Column:
    """``name`` heads it in CSV, unit included; ``label`` heads it for people.

    What is ``detail`` is shown on demand, behind the other columns.
    """

    name: str
    label: str
    kind: ColumnKind = ColumnKind.AMOUNT
    detail: bool = False

    @property
    def numeric(self) -> bool:
        """Whether it is sorted by size and set to the right."""
        return self.kind not in _WORDS

    def text(self, value: Value) -> str:
        """The value for people."""
        return MISSING if value is None else _FORMS[self.kind](value)

    def order(self, value: Value) -> str:
        """What a script sorts the value by; empty where it is not known."""
        if value is None:
            return ""
        if isinstance(value, Range):
            return repr(float(value.median))
        return repr(float(value)) if not isinstance(value, str) else text.shown(value).casefold()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """``definition`` says what the figures mean, ``evidence`` what they rest on."""

    name: str
    title: str
    definition: str
    evidence: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]

    @property
    def shown(self) -> tuple[int, ...]:
        """Places of the columns in which something is known, without the details."""
        return tuple(
            place
            for place, column in enumerate(self.columns)
            if not column.detail and any(row[place] is not None for row in self.rows)
        )

    @property
    def detailed(self) -> bool:
        """Whether there are details."""
        return any(column.detail for column in self.columns)

    def details_of(self, row: tuple[Value, ...]) -> list[tuple[Column, Value]]:
        """What is shown on demand of a row."""
        pairs = zip(self.columns, row, strict=True)
        return [(column, value) for column, value in pairs if column.detail and value]
