"""From the exchanged columns to the stored ones: source keys, shape cells, shared texts."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from profiles.conventions import DIM_FIELDS, DIRECTIONS, DTYPE_BYTES, SHAPE_FIELDS
from profiles.rules import number_fault
from profiles.storage import COLUMNS, MEASUREMENT_COLUMNS, Source

Row = Mapping[str, str]
Cells = tuple[str, ...]

# A text becomes a reference where it is long and shared enough to pay for its own line.
_SHARED_LENGTH = 16
_SHARED_ROWS = 3


@dataclass(frozen=True, slots=True)
class Book:
    """Keys of all sources: which rows a key stands for, and what it cites."""

    sources: Mapping[str, Source]
    keys: Mapping[tuple[str, str, str], str]

    def key(self, row: Row) -> str:
        """The key of a row's repository, commit and licence."""
        return self.keys[_origin(row)]


def book_of(rows: Iterable[Row]) -> Book:
    """A key for every repository, commit and licence that occurs, independent of row order."""
    found: dict[str, Source] = {}
    keys: dict[tuple[str, str, str], str] = {}
    for origin in sorted({_origin(row) for row in rows}):
        repository, commit, license_ = origin
        base = re.sub(r"[^a-z0-9.]+", "-", repository.rpartition("/")[2].lower())
        key = base = f"{base}-{commit[:7]}" if commit else base
        number = 1
        while key in found:
            number += 1
            key = f"{base}-{number}"
        name = repository.removeprefix("github:")
        citation = f"{name}, commit {commit[:10]}, {license_}"
        found[key] = Source(key, repository, commit, license_, citation)
        keys[origin] = key
    return Book(found, keys)


def _origin(row: Row) -> tuple[str, str, str]:
    return row.get("source_repo", ""), row.get("source_commit", ""), row.get("license", "")


def number(text: str) -> str:
    """A number as short as it can be written: ``2048.0`` is ``2048``."""
    return text.removesuffix(".0")


def shape(row: Row) -> str:
    """The ``shape`` cell of an operator row: its dimensions in the order of ``SHAPE_FIELDS``."""
    return " ".join(number(row.get(name, "")) or "nan" for name in SHAPE_FIELDS[row["op"]])


def operator_word_fault(row: Row) -> str | None:
    """Why the words of an operator row are not understood."""
    if row["op"] not in SHAPE_FIELDS:
        return f"op {row['op']!r} is not one of {', '.join(SHAPE_FIELDS)}"
    if row["direction"] not in DIRECTIONS:
        return f"direction {row['direction']!r} is not one of {', '.join(DIRECTIONS)}"
    if row["precision"] not in DTYPE_BYTES:
        return f"precision {row['precision']!r} is not one of {', '.join(DTYPE_BYTES)}"
    return number_fault(row, ("time_us",)) or (None if row["time_us"] else "time_us is empty")


def stray_dimension(row: Row) -> str | None:
    """Why a row's dimensions do not fit its operator."""
    for name in DIM_FIELDS:
        text = row.get(name, "")
        if text and name not in SHAPE_FIELDS[row["op"]]:
            return f"{name}={text} has no meaning for {row['op']}"
        if text and not _is_size(text, 0 if name.startswith("pad") else 1):
            return f"{name}={text!r} is not a size"
    return None


def _is_size(text: str, least: int) -> bool:
    try:
        return least <= float(text) < math.inf
    except ValueError:
        return False


def operator_cells(row: Row, key: str) -> Cells:
    """An operator row in ``OPERATOR_COLUMNS``."""
    return (
        row["id"],
        key,
        row["source_path"],
        row["library"],
        row["op"],
        row["direction"],
        row["precision"],
        shape(row),
        row["params"],
        number(row["time_us"]),
        row["note"],
    )


def collective_cells(row: Row, key: str) -> Cells:
    """A collective row in ``COLLECTIVE_COLUMNS``; the bus bandwidth is derived, not stored."""
    return (
        row["id"],
        key,
        row["source_path"],
        row["system"],
        row["interconnect"],
        row["library"],
        row["op"],
        number(row["gpus"]),
        number(row["nodes"]),
        number(row["gpus_per_node"]),
        number(row["bytes"]),
        row["precision"],
        number(row["time_us"]),
        row["note"],
    )


def measurement_cells(row: Row, key: str) -> Cells:
    """A measurement in ``STORED_MEASUREMENT_COLUMNS``, every cell as it came."""
    rest = (row.get(name, "") for name in MEASUREMENT_COLUMNS[5:])
    return (row["id"], key, row["source_path"], *rest)


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows of one file and the names of their columns."""

    columns: Sequence[str]
    rows: Sequence[Cells]

    def words(self) -> Iterator[str]:
        """Every cell of a column that may hold a reference."""
        for place in self._places():
            yield from (cells[place] for cells in self.rows)

    def refer(self, references: Mapping[str, str]) -> Iterator[list[str]]:
        """The rows with shared texts replaced by their references."""
        places = self._places()
        for cells in self.rows:
            row = list(cells)
            for place in places:
                row[place] = references.get(row[place], row[place])
            yield row

    def _places(self) -> list[int]:
        return [i for i, name in enumerate(self.columns) if name in COLUMNS["shared"]]


def shared_texts(tables: Iterable[Packed]) -> dict[str, str]:
    """References (``#`` and hex digits of a hash) of the texts that many rows share."""
    counts = Counter(word for table in tables for word in table.words())
    references: dict[str, str] = {}
    taken: set[str] = set()
    for text in sorted(counts):
        if len(text) >= _SHARED_LENGTH and counts[text] >= _SHARED_ROWS:
            references[text] = reference = _reference(text, taken)
            taken.add(reference)
    return references


def _reference(text: str, taken: set[str]) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()
    length = next(n for n in range(6, len(digest)) if "#" + digest[:n] not in taken)
    return "#" + digest[:length]
