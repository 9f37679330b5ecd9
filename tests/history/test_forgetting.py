"""What is forgotten is gone, and the rest stays."""

from __future__ import annotations

from pathlib import Path

from history_runs import run_number

from predictor.site.history.store import Cursor, History

RUNS = [run_number(n) for n in range(30)]


def test_runs_that_ended_before_are_gone_and_the_cursor_stays(history: History) -> None:
    history.add(RUNS, cursor=Cursor("sacct", 9))
    assert history.forget(RUNS[20].ended.end_s) == 20
    assert list(history.runs()) == RUNS[20:]
    assert history.forget(RUNS[20].ended.end_s) == 0
    assert history.cursor("sacct") == 9


def test_nothing_of_them_is_left_in_the_file_and_its_space_is_given_back(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    with History.open(str(path)) as history:
        history.add(run_number(n, ended={"name": "forget-me"}) for n in range(5000))
        history.add([run_number(5000)])
        large = path.stat().st_size + Path(f"{path}-wal").stat().st_size
        history.forget(run_number(5000).ended.end_s)
        left = b"".join(file.read_bytes() for file in tmp_path.glob("h.sqlite*"))
        assert b"forget-me" not in left
        assert len(left) < large / 10
        assert list(history.runs()) == [run_number(5000)]


def test_forgetting_beside_a_reader_takes_nothing_from_it(history: History) -> None:
    history.add(RUNS)
    reader = history.runs()
    first = next(reader)
    history.forget(RUNS[-1].ended.end_s)
    assert [first, *reader] == RUNS
    assert history.count() == 1
