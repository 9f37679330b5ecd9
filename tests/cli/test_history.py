"""`precision-time history`: where it is, what it holds, shown, copied out, shortened."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import Result
from history_runs import PERIOD_S, bare, run_number

from predictor.site.history.engine import shown, url_of
from predictor.site.history.run import JobState
from predictor.site.history.store import Cursor, History

Run = Callable[..., Result]
END_S = run_number(0).ended.end_s


@pytest.fixture
def place(home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A history with ten runs, one of them known by the scheduler alone."""
    path = str(home / "site.sqlite")
    monkeypatch.setenv("PRECISION_TIME_HISTORY", path)
    runs = [run_number(n) for n in range(8)]
    failed = run_number(8, ended={"state": JobState.FAILED, "start_s": None, "limit_s": None})
    with History.open() as history:
        history.add([*runs, failed, bare(run_number(9))], cursor=Cursor("slurm alpha", END_S))
    return path


def test_no_password_is_shown() -> None:
    assert shown(url_of("postgresql://u:secret@h/d")) == "postgresql://u:***@h/d"


def test_the_status_says_what_it_holds(place: str, run_json: Callable[..., Any], run: Run) -> None:
    found = run_json("history", "status")
    size = found.pop("bytes")
    assert size == Path(place).stat().st_size
    assert found == {
        "url": f"sqlite:///{place}",
        "schema": "0003",
        "names": "none",
        "keep_days": None,
        "runs": 10,
        "predicted": 9,
        "reported": 9,
        "first_end_s": END_S,
        "last_end_s": END_S + 9 * PERIOD_S,
        "cursors": {"slurm alpha": END_S},
    }
    lines = run("history", "status").stdout.splitlines()
    assert ["runs", "10"] in [line.split() for line in lines]
    assert lines[-1].startswith("slurm alpha until")


def test_the_latest_runs_are_shown_oldest_first(place: str, run: Run) -> None:
    head, *lines = run("history", "show", "--last", "3").stdout.splitlines()
    assert head.split()[:6] == ["ended", "job", "user", "state", "model", "precision"]
    assert [line.split()[2] for line in lines] == ["1007", "1008", "1009"]
    assert lines[0].split()[3:6] == ["user0", "completed", "resnet50"]


def test_runs_are_shown_by_job_and_by_what_they_are(
    place: str, run_json: Callable[..., Any]
) -> None:
    (shown,) = run_json("history", "show", "1003")
    assert shown["ended"]["job_id"] == "1003"
    assert shown["predicted"]["median_s"] == 3600.5
    failed = run_json("history", "show", "--state", "failed", "--model", "resnet50")
    assert [one["ended"]["job_id"] for one in failed] == ["1008"]
    assert run_json("history", "show", "--user", "nobody") == []


@pytest.mark.parametrize(
    ("suffix", "read"),
    [(".parquet", pl.read_parquet), (".csv", pl.read_csv), (".ndjson", pl.read_ndjson)],
)
def test_runs_are_written_for_other_tools(
    place: str, run: Run, tmp_path: Path, suffix: str, read: Callable[[Path], pl.DataFrame]
) -> None:
    file = tmp_path / f"runs{suffix}"
    said = run("history", "export", str(file), "--only-reported", "--user", "user1").stdout
    assert said == f"{file}: 2 runs\n"
    frame = read(file)
    assert sorted(map(str, frame["job_id"])) == ["1001", "1008"]
    assert frame["end_s"].max() == run_number(8).ended.end_s
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [file.name]


def test_another_form_is_refused(place: str, run: Run, tmp_path: Path) -> None:
    said = run("history", "export", str(tmp_path / "runs.xlsx"), code=2).stderr
    assert said.endswith(".parquet, .csv, .ndjson\n")


def test_old_runs_are_forgotten_by_time_and_by_the_settings(place: str, run: Run) -> None:
    said = run("history", "forget", code=2).stderr
    assert said == "error: invalid before=None; expected a time, or keep_days in the settings\n"
    run("history", "forget", "--before", "2023-11-01")
    with History.open() as history:
        assert history.count() == 10
    Path(place).with_name("history.yaml").write_text("keep_days: 30\n")
    assert run("history", "forget").stdout.startswith("10 runs forgotten that ended before 2")


@pytest.mark.parametrize(
    "command", [("status",), ("show",), ("forget", "--before", "1d"), ("export", "runs.csv")]
)
def test_a_history_that_is_not_there_is_not_made(
    run: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    path = tmp_path / "h.sqlite"
    said = run("history", *command, "--history", str(path), code=2).stderr
    began = f"error: history sqlite:///{path}: there is no file {path}: begin it with"
    assert said.startswith(began)
    assert not path.exists()


def test_the_json_of_a_run_is_all_of_it(place: str, run: Run) -> None:
    (one,) = json.loads(run("history", "show", "1009", "--format", "json").stdout)
    assert (one["asked"], one["predicted"], one["reported"]) == ("", None, None)


@pytest.mark.parametrize(
    ("missing", "command"),
    [
        ("sqlalchemy", "history export runs.csv"),
        ("polars", "history export runs.csv"),
        ("sqlalchemy", "calibrate"),
        ("sqlalchemy", "k8s eta"),
        ("sqlalchemy", "history ingest kubernetes"),
    ],
)
def test_without_the_extra_it_is_named(place: str, missing: str, command: str) -> None:
    words = command.split()
    program = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        f"from predictor.cli.main import main; main({words!r})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert done.stderr.endswith("pip install 'precision-time[history]'\n")
