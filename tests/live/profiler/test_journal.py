"""Rows that were written stay, whatever happens to the one that wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.errors import ProfilerError
from predictor.measure.profiler.directory import Journal

COLUMNS = ("id", "note")
ROWS = [("a", "plain"), ("b", 'with "quotes", and a comma'), ("c", "")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal of three rows that was closed."""
    with Journal(tmp_path / "table.csv", COLUMNS) as journal:
        for row in ROWS:
            journal.append(row)
    return tmp_path / "table.csv"


def test_it_goes_on_behind_the_last_row(path: Path) -> None:
    before = path.read_bytes()
    with Journal(path, COLUMNS) as journal:
        assert journal.done == {"a", "b", "c"}
        journal.append(("d", "x"))
    assert path.read_bytes() == before + b"d,x\n"


@given(cut=st.integers(0, 60))
def test_a_torn_line_is_dropped_and_whole_ones_stay(
    cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("journal") / "table.csv"
    with Journal(path, COLUMNS) as journal:
        for row in ROWS:
            journal.append(row)
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    with Journal(path, COLUMNS) as journal:
        kept = set(journal.done)
        for row in ROWS:
            if row[0] not in kept:
                journal.append(row)
    assert path.read_bytes() == whole


def test_nobody_else_writes_at_the_same_time(path: Path) -> None:
    with (
        Journal(path, COLUMNS),
        pytest.raises(ProfilerError, match="by another process"),
        Journal(path, COLUMNS),
    ):
        pass
    with Journal(path, COLUMNS):
        pass


def test_a_file_of_other_columns_is_left_alone(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(ProfilerError, match="other columns: id, note"):
        Journal(path, ("id", "time"))
    assert path.read_bytes() == before
