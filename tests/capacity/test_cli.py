"""The commands: from files and histories, to text, JSON and files; refusals in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest
from capacity_jobs import START_S, frame, job
from click.testing import CliRunner, Result

from predictor.cli.main import main
from predictor.errors import HistoryError
from predictor.estimate.fitting import Fitted
from predictor.site.capacity.jobs import is_sample, of_file

SAMPLE = Path(__file__).parents[2] / "profiles" / "samples" / "history.csv.gz"
ASKED = "model=resnet50 precision=fp32 batch_size=64 steps=1000"
PERIOD = ("--since", "2025-01-06T00:00+00:00", "--until", "2025-01-07T00:00+00:00")


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["capacity", *words])


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.parquet"
    ran = [job(job_id=str(n), asked=ASKED, gpus=2) for n in range(3)]
    waits = job(job_id="9", asked=ASKED, state="pending", start_s=None, end_s=None)
    runs = job(job_id="8", state="running", end_s=None, gpus=4, limit_s=30 * 86_400.0)
    frame([*ran, runs, waits]).sink_parquet(path)
    return path


def test_the_report_of_a_file_as_json(jobs: Path, tmp_path: Path, fitted: Fitted) -> None:
    file = tmp_path / "report.json"
    found = run(
        "report",
        "--from",
        str(jobs),
        *PERIOD,
        "--gpus",
        "v100-sxm2-16gb:8",
        "--format",
        "json",
        "--json",
        str(file),
    )
    assert found.exit_code == 0, found.output
    said = json.loads(found.stdout)
    assert said["hours"]["completed"] == pytest.approx(6)
    assert said["hours"]["running"] == pytest.approx(4 * 24)
    assert said["capacity"] == pytest.approx(8 * 24)
    assert [one["job_id"] for one in said["queue"]] == ["9"]
    assert json.loads(file.read_text())["hours"] == said["hours"]


def test_every_form_is_written(jobs: Path, tmp_path: Path) -> None:
    found = run(
        "report",
        "--from",
        str(jobs),
        *PERIOD,
        "--output",
        str(tmp_path / "r.html"),
        "--csv",
        str(tmp_path / "csv"),
        "--prometheus",
        str(tmp_path / "r.prom"),
        "--email",
        "ops@example.org",
    )
    assert found.exit_code == 0, found.output
    assert "<html" in (tmp_path / "r.html").read_text()
    assert list((tmp_path / "csv").glob("*.csv"))
    assert "precision_time_capacity_" in (tmp_path / "r.prom").read_text()
    assert "To: ops@example.org" in found.stderr  # printed, for --send was not given


def test_users_get_pages_of_their_own_and_mails(tmp_path: Path) -> None:
    path = tmp_path / "jobs.parquet"
    rows = [job(), job(job_id="2", user="bob", state="failed"), job(job_id="3", user="e/../v")]
    frame([*rows, job(job_id="4", user="")]).sink_parquet(path)
    pages = tmp_path / "pages"
    found = run("report", "--from", str(path), *PERIOD, "--user-pages", str(pages))
    assert found.exit_code == 0, found.output
    names = {each.name for each in pages.iterdir()}
    assert names == {"ada.html", "ada.eml", "bob.html", "bob.eml", "e_.._v.html"}
    bob = (pages / "bob.html").read_text()
    assert "Most fail in the first minutes" not in bob  # they ran for an hour
    assert "write checkpoints" in bob
    assert not re.search(r"\bada\b", bob)
    assert "To: bob\n" in (pages / "bob.eml").read_text()


def test_the_capacity_is_not_told_where_a_type_is_not_stated(jobs: Path) -> None:
    found = run("report", "--from", str(jobs), *PERIOD, "--format", "json")
    assert json.loads(found.stdout)["idle"] is None
    assert "v100-sxm2-16gb" in json.loads(found.stdout)["notes"][0]


def test_gpus_that_jobs_contradict_are_told(jobs: Path) -> None:
    words = ("report", "--from", str(jobs), *PERIOD, "--format", "json", "--gpus")
    few, slip = run(*words, "v100-sxm2-16gb:1"), run(*words, "v100-sxm2-16g:64")
    assert "in use at once, of 1 stated" in json.loads(few.stdout)["notes"][0]
    assert "No job ran on v100-sxm2-16g," in " ".join(json.loads(slip.stdout)["notes"])
    twice = run(*words, "v100:8", "--gpus", "v100-sxm2-16gb:8")
    assert twice.exit_code == 2
    assert "stated twice" in twice.stderr


def test_an_empty_period_is_a_report_of_nothing(jobs: Path) -> None:
    found = run(
        "report",
        "--from",
        str(jobs),
        "--since",
        "2020-01-01",
        "--until",
        "2020-02-01",
        "--format",
        "json",
    )
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["origin"]["jobs"] == 0
    notes = " ".join(json.loads(found.stdout)["notes"])
    assert "No job ran in the period: those known ended from 20" in notes


def test_the_queue_is_shown_with_its_starts(jobs: Path, fitted: Fitted) -> None:
    found = run("queue", "--from", str(jobs), *PERIOD, "--gpus", "v100-sxm2-16gb:4")
    assert found.exit_code == 0, found.output
    assert "9  " in found.stdout


def test_what_if_compares_two_replays(jobs: Path, fitted: Fitted) -> None:
    found = run(
        "whatif",
        "--from",
        str(jobs),
        *PERIOD,
        "--gpus",
        "v100-sxm2-16gb:10",
        "--to-precision",
        "mixed",
        "--format",
        "json",
    )
    assert found.exit_code == 0, found.output
    said = json.loads(found.stdout)
    assert said["baseline"]["jobs"] == said["changed"]["jobs"] == 4


def test_a_replay_in_mixed_precision_tells_why_it_saves_another_amount(
    jobs: Path, fitted: Fitted, tmp_path: Path
) -> None:
    page, words = tmp_path / "a.md", ("report", "--from", str(jobs), *PERIOD)
    found = run(*words, "--gpus=v100-sxm2-16gb:10", "--to-precision=mixed", "--output", str(page))
    assert found.exit_code == 0, found.output
    assert "the savings listed have a low end above 0" in page.read_text()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("whatif",), "nothing would change"),
        (("report", "--since", "2025-02-01", "--until", "2025-01-01"), "ends before it begins"),
        (("report", "--from", "missing.csv"), "there is no such file"),
        (("report", "--from", "jobs.xlsx"), "expected a file"),
        (("whatif", "--add", "a100"), "NAME:GPUS"),
        (("whatif", "--add", "h1000:8"), "add=h1000; expected a name of `precision-time gpus`"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(words: tuple[str, ...], reason: str) -> None:
    found = run(*words, *(() if "--from" in words else ("--from", str(SAMPLE))))
    assert found.exit_code == 2
    assert reason in found.stderr
    assert found.stderr.count("error:") == 1


def test_a_file_without_a_needed_column_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,gpus\n1,2\n")
    with pytest.raises(HistoryError, match="no column for submit; start or wait or elapsed; end"):
        of_file(path)


def test_a_csv_file_and_its_parquet_form_are_the_same_jobs(tmp_path: Path) -> None:
    path = tmp_path / "sample.parquet"
    sample = of_file(SAMPLE).frame
    sample.sink_parquet(path)
    assert of_file(path).frame.collect().equals(sample.collect())


def test_the_shipped_sample_is_marked_as_one_and_small() -> None:
    sample = of_file(SAMPLE).frame
    assert is_sample(sample)
    assert sample.select(pl.len()).collect().item() > 5000
    assert SAMPLE.stat().st_size < 500_000
    assert float(sample.select(pl.col("submit_s").min()).collect().item()) >= START_S
