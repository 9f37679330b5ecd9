"""Several writers, and writers that die: nothing is lost, nothing is there twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from history_runs import run_number

from predictor.site.history.store import History

from .writer import STAGED_ROWS
from .writers import writer

ROWS = 100


def test_two_writers_of_the_same_runs_lose_and_double_nothing(url: str) -> None:
    History.open(url).close()
    there, back = range(12), range(15, 3, -1)  # batches 4 to 11 are written by both
    with writer(url, ROWS, *there) as one, writer(url, ROWS, *back) as other:
        done = [line for words in (one.all_said(), other.all_said()) for line in words[1:]]
    with History.open(url) as history:
        assert list(history.runs()) == [run_number(n) for n in range(16 * ROWS)]
    assert sum(line["new"] for line in done) == 16 * ROWS
    assert sum(line["same"] for line in done) == 8 * ROWS


def test_programs_that_make_the_history_at_once_make_one(url: str) -> None:
    with writer(url, 1, 0) as a, writer(url, 1, 1) as b, writer(url, 1, 2) as c:
        for process in (a, b, c):
            process.all_said()
    with History.open(url) as history:
        assert history.count() == 3


@pytest.mark.parametrize("batches", [1, 6])
def test_a_writer_killed_anywhere_leaves_whole_batches_and_the_cursor_of_the_last(
    url: str, batches: int
) -> None:
    with writer(url, ROWS, *range(200)) as process:
        for _ in range(batches + 1):
            process.said()
        process.kill()
    with History.open(url) as history:
        cursor = history.cursor("writer")
        assert cursor is not None
        assert cursor >= batches - 1
        assert list(history.runs()) == [run_number(n) for n in range((int(cursor) + 1) * ROWS)]


def test_a_writer_killed_inside_a_transaction_has_written_none_of_it(url: str) -> None:
    rows = STAGED_ROWS + 50
    with writer(url, rows, 0, "hold", 1) as process:
        while "inside" not in process.said():
            pass
        with History.open(url) as history:
            assert history.count() == rows
        process.kill()
    with History.open(url) as history:
        assert (history.count(), history.cursor("writer")) == (rows, 0)
    with writer(url, rows, 1) as process:
        assert process.all_said()[-1] == {"number": 1, "new": rows, "changed": 0, "same": 0}
    with History.open(url) as history:
        assert (history.count(), history.cursor("writer")) == (2 * rows, 1)


def test_nothing_but_the_history_is_left_beside_it(tmp_path: Path) -> None:
    with writer(str(tmp_path / "h.sqlite"), ROWS, 0) as process:
        process.all_said()
    assert [path.name for path in tmp_path.iterdir() if path.name != "home"] == ["h.sqlite"]
