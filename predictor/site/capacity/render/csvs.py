"""The tables of a report as CSV files, exact values with units in their headings."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from ..report_data import CapacityReport, Range
from .table import Column, ColumnKind, ReportTable, Value
from .tables import every_table
from .text import iso, shown

# A spreadsheet takes a cell that begins so for a formula.
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_LONGEST = 1_000_000
_SPANS = (ColumnKind.SPAN, ColumnKind.DURATION_SPAN)
_MOMENTS = (ColumnKind.MOMENT, ColumnKind.DAY)


def write_csvs(report: CapacityReport, directory: Path) -> tuple[Path, ...]:
    """One file a table, named for it; makes the directory, replaces what is there."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for table in every_table(report):
        path = directory / f"{table.name}.csv"
        path.write_text(csv_text(table), "utf-8", errors="replace", newline="")
        written.append(path)
    return tuple(written)


def csv_text(table: ReportTable) -> str:
    """A heading and a line a row; a range takes three columns, what is not known is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([name for column in table.columns for name in _names(column)])
    for row in table.rows:
        cells = zip(table.columns, row, strict=True)
        writer.writerow([cell for column, value in cells for cell in _cells(column, value)])
    return text.getvalue()


def _names(column: Column) -> tuple[str, ...]:
    if column.kind in _SPANS:
        return tuple(f"{column.name}_{part}" for part in ("low", "median", "high"))
    return (column.name,)


def _cells(column: Column, value: Value) -> tuple[str | float, ...]:
    if isinstance(value, Range):
        return value.low, value.median, value.high
    if value is None:
        return ("",) * len(_names(column))
    if isinstance(value, str):
        # Spelt out, a control character can neither end the line nor hide the rest of it.
        text = shown(value, _LONGEST)
        return (f"'{text}" if text.startswith(_FORMULA) else text,)
    return (iso(value) if column.kind in _MOMENTS else value,)
