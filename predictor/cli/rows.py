"""Measurement files as commands are given them."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import JobError, MeasurementError
from .console import warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..estimate.measurement import Row

MOST_WORDS = 12  # shown one by one
COMPUTED = ("tier", "source", "stack")  # columns that an evaluation adds to those of the file


def read_rows(path: Path) -> list[Row]:
    """Rows of a measurement file; one without an id is named for its place.

    Raises MeasurementError where the file cannot be read or has no rows.
    """
    from ..estimate.measurement import read_csv

    try:
        rows = read_csv(path)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise MeasurementError(f"{path} cannot be read: {reason(error)}") from error
    if not rows:
        raise MeasurementError(f"{path} holds no rows")
    return [{**row, "id": row["id"] or f"row {n}"} for n, row in enumerate(rows, start=1)]


def warn_of_unknown_words(rows: Sequence[Row]) -> None:
    """Count on stderr the words of other people's tables that say nothing to us."""
    from ..estimate.measurement import unknown_words

    counts = Counter(word for row in rows for word in unknown_words(row))
    if counts:
        shown = ", ".join(f"{word} ({n})" for word, n in counts.most_common(MOST_WORDS))
        more = len(counts) - MOST_WORDS
        warn(f"unknown words are ignored: {shown}" + (f" and {more} others" if more > 0 else ""))


def reason(error: Exception) -> str:
    """Why a file cannot be read or written, without its name."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def grouping(text: str | None, rows: Sequence[Row]) -> tuple[str, ...]:
    """The columns of ``--by``; raises JobError for one that the file does not have."""
    columns = tuple(c.strip() for c in (text or "").split(",") if c.strip())
    known = dict.fromkeys((*COMPUTED, *rows[0]))
    for column in columns:
        if column not in known:
            raise JobError("by", column, f"columns are {', '.join(known)}")
    return columns


def ids(text: str | None) -> frozenset[str]:
    """Ids listed with commas, or those of a file: its column ``id``, else one a line.

    Raises MeasurementError where the file cannot be read.
    """
    if text is None:
        return frozenset()
    path = Path(text)
    try:
        if not path.is_file():
            return frozenset(part.strip() for part in text.split(",") if part.strip())
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise MeasurementError(f"{text} cannot be read: {reason(error)}") from error
    if lines and "id" in next(csv.reader(lines[:1])):
        return frozenset(row["id"] for row in csv.DictReader(lines))
    return frozenset(line.strip() for line in lines if line.strip())
