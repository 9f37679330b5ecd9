"""Measured runs without a scheduler: rows in the columns of the shipped measurements."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from predictor.cli.main import main
from predictor.errors import MeasurementError
from predictor.estimate.measurement import Measurement, measurement, shipped
from predictor.identify.grammar import parse_text
from predictor.site.history.csv_rows import items, run_of
from predictor.site.history.ingest import Unread
from predictor.site.history.run import JobState, Run
from predictor.site.history.store import History

WRITTEN_S = 1_700_000_000.0
ROW = {
    "id": "a1",
    "model": "resnet50",
    "gpu": "a100-sxm4-80gb",
    "gpus": "8",
    "precision": "mixed_fp16_fp32",
    "batch_per_gpu": "256",
    "iteration_s": "0.12",
    "framework": "pytorch",
    "source_repo": "https://github.com/lab/north",
    "options": "",
}


def measured(**changes: str) -> Measurement:
    return measurement({**ROW, **changes})


def run(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["history", "ingest", *words])
    assert result.exit_code == code, result.output
    return result


def written(path: Path, *rows: Mapping[str, str]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        writer.writerows(rows)
    os.utime(path, (WRITTEN_S, WRITTEN_S))
    return path


def test_a_row_becomes_a_run_that_reported_its_steps() -> None:
    found = run_of(measured(steps="1000"), WRITTEN_S)
    job, reported = found.ended, found.reported
    assert found.key == ("csv", "north", "a1", 0)
    assert (job.state, job.gpus, job.gpu_type) == (JobState.COMPLETED, 8, "a100-sxm4-80gb")
    assert job.start_s == pytest.approx(WRITTEN_S - 120)
    assert job.end_s == WRITTEN_S
    assert reported is not None
    assert (reported.step_s, reported.steps) == (0.12, 1000)
    assert (found.asked, found.origin) == (
        "model=resnet50 precision=mixed_fp16_fp32 batch_size=256 grad_accum=1",
        "csv",
    )


def test_a_row_may_tell_when_it_ran() -> None:
    found = run_of(measured(submit_s="100", start_s="160", end_s="4000"), WRITTEN_S)
    assert found.key[-1] == 100
    assert (found.ended.start_s, found.ended.end_s) == (160.0, 4000.0)


@pytest.mark.parametrize(
    "times", [{"end_s": "soon"}, {"end_s": "nan"}, {"start_s": "9e9"}, {"submit_s": "-1"}]
)
def test_impossible_times_are_refused(times: dict[str, str]) -> None:
    with pytest.raises(MeasurementError, match=next(iter(times))):
        run_of(measured(**times), WRITTEN_S)


def test_what_is_asked_reads_back_without_a_problem_for_every_shipped_run() -> None:
    for one in shipped():
        job, stated = one.job, parse_text(run_of(one, WRITTEN_S).asked, "csv")
        assert stated.problems == ()
        again = stated.job(gpu=job.gpu, gpus=job.gpus, gpus_per_node=job.gpus_per_node)
        for name in (
            "model",
            "precision",
            "micro_batch_size",
            "step_samples",
            "seq_len",
            "image_size",
            "grad_accum",
            "sharding",
            "split",
        ):
            assert getattr(again, name) == getattr(job, name), one.id


def test_a_row_that_cannot_be_read_says_why() -> None:
    rows = [ROW, {**ROW, "id": "b", "model": "no-such-net"}, {**ROW, "id": "c", "gpus": "x"}]
    good, *bad = items(rows, WRITTEN_S)
    assert isinstance(good, Run)
    assert all(isinstance(item, Unread) for item in bad)
    assert "no-such-net" in str(bad[0])
    assert "gpus" in str(bad[1])


def test_the_command_counts_and_a_second_time_changes_nothing(tmp_path: Path) -> None:
    path, history = tmp_path / "runs.csv", str(tmp_path / "h.sqlite")
    written(path, ROW, {**ROW, "id": "a2"}, {**ROW, "id": "", "model": "no-such-net"})
    first = run("csv", str(path), "--history", history)
    assert f"{history}: 2 runs read" in first.stdout.replace("sqlite:///", "")
    assert "1 record cannot be read, such as runs row 3: model 'no-such-net'" in first.stderr
    second: Any = json.loads(run("csv", str(path), "--history", history, "--format", "json").stdout)
    assert (second["new"], second["changed"], second["same"]) == (0, 0, 2)
    with History.open(history) as store:
        assert {found.ended.job_id for found in store.runs()} == {"a1", "a2"}


def test_the_installed_schedulers_add_a_command_each() -> None:
    listed = run("--help").stdout.partition("Commands:")[2].partition("Examples:")[0].split("\n")
    names = [line.split()[0] for line in listed if line.strip()]
    assert names == ["csv", "sacct", "swf", "kubernetes", "slurm"]
    for name in names:
        assert "--history" in run(name, "--help").stdout


def test_a_history_without_its_extra_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "predictor.site.history.store")
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    path = written(tmp_path / "runs.csv", ROW)
    failed = run("csv", str(path), "--history", str(tmp_path / "h"), code=2)
    assert "pip install 'precision-time[history]'" in failed.stderr
