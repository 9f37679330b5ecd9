"""The queue of a scheduler in the capacity commands, read by adapters found by entry point."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest
from capacity_jobs import START_S, frame, job
from click.testing import CliRunner, Result

from predictor.cli import capacity_source
from predictor.errors import ReportError
from predictor.estimate.fitting import Fitted
from predictor.site.capacity.jobs import JobSource, with_live
from predictor.site.capacity.live import Live, LiveJob, pools_of_nodes
from predictor.site.capacity.queue import queue_at
from predictor.site.similar.request import JobRequest

NOW_S = START_S + 3600
V100 = "v100-sxm2-16gb"
ASKED = JobRequest(
    user="ada", account="lab", name="train", partition="gpu", gpus=2, gpu_type=V100, limit_s=7200.0
)
WAITS = LiveJob(
    job_id="20",
    request=ASKED,
    submit_s=NOW_S - 60,
    start_s=None,
    limit_s=7200.0,
)
RUNS = replace(WAITS, job_id="10", start_s=NOW_S - 30, request=replace(ASKED, gpus=4))
LIVE = Live(
    scheduler="slurm",
    cluster="c",
    at_s=NOW_S,
    jobs=(RUNS, WAITS),
    pools=pools_of_nodes(((V100, 4),)),
)
Adapters = Callable[[Mapping[str, Callable[[], Live]]], None]


@pytest.fixture
def adapters(monkeypatch: pytest.MonkeyPatch) -> Adapters:
    """Install adapters that read the queue with these functions, and no others."""

    def install(readers: Mapping[str, Callable[[], Live]]) -> None:
        module = ModuleType("adapters_of_a_test")
        for name, read in readers.items():
            setattr(module, name, read)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        points = {
            name: EntryPoint(name, f"{module.__name__}:{name}", capacity_source.QUEUE)
            for name in readers
        }

        def declared(group: str) -> Mapping[str, EntryPoint]:
            return points if group == capacity_source.QUEUE else {}

        monkeypatch.setattr(capacity_source, "plugin_points", declared)

    return install


@pytest.fixture
def jobs(tmp_path: Path) -> str:
    path = tmp_path / "jobs.parquet"
    frame([job(job_id="1", gpus=2)]).sink_parquet(path)
    return str(path)


def run(*words: str) -> Result:
    from predictor.cli.main import main

    return CliRunner().invoke(main, ["capacity", *words])


def away() -> Live:
    raise ReportError("slurmctld does not answer")


def lacking() -> Live:
    raise ModuleNotFoundError("No module named 'ClusterShell'", name="ClusterShell")


def ids(source: JobSource) -> list[str]:
    return [one.job_id for one in queue_at(source, NOW_S).jobs]


def test_jobs_of_a_queue_stand_beside_those_that_ended_before() -> None:
    ended = [
        job(job_id="1", end_s=NOW_S - 1),
        job(job_id="10", start_s=NOW_S - 30, end_s=NOW_S + 1),
    ]
    source = with_live(JobSource(frame=frame(ended), kind="slurm", name="slurm"), LIVE)
    table = source.frame.sort("job_id").collect()
    assert table.select("job_id", "state").rows() == [
        ("1", "completed"),
        ("10", "running"),
        ("20", "pending"),
    ]
    assert ids(source) == ["10", "20"]
    assert source.pools == LIVE.pools


def test_what_waits_goes_by_priority_then_by_submission() -> None:
    waiting = tuple(
        replace(WAITS, job_id=name, priority=priority, submit_s=NOW_S - before)
        for name, priority, before in (("a", 1, 10), ("b", 5, 10), ("c", 5, 20), ("d", 0, 99))
    )
    source = with_live(
        JobSource(frame=frame([]), kind="slurm", name="slurm"), replace(LIVE, jobs=waiting)
    )
    assert ids(source) == ["c", "b", "a", "d"]


def test_a_held_job_is_told_of_and_not_queued(adapters: Adapters, fitted: Fitted) -> None:
    held = replace(WAITS, job_id="30", held=True)
    adapters({"slurm": lambda: replace(LIVE, jobs=(RUNS, WAITS, held))})
    found = run("queue", "--format", "json")
    assert found.exit_code == 0, found.output
    said = json.loads(found.stdout)
    assert [one["job_id"] for one in said["queue"]] == ["20"]
    assert said["set_aside"][0]["example"] == "30"
    assert "held" in said["set_aside"][0]["reason"]


def test_the_scheduler_that_answers_is_taken(adapters: Adapters, fitted: Fitted) -> None:
    adapters({"kubernetes": away, "slurm": lambda: LIVE})
    found = run("queue")
    assert found.exit_code == 0, found.output
    assert V100 in found.stdout


def test_where_no_scheduler_answers_each_says_why(adapters: Adapters) -> None:
    adapters({"kubernetes": lacking, "slurm": away})
    found = run("queue")
    assert found.exit_code == 2
    assert "kubernetes: No module named 'ClusterShell'" in found.stderr
    assert "pip install 'precision-time[kubernetes]'" in found.stderr
    assert "slurm: slurmctld does not answer" in found.stderr
    assert "--from history" in found.stderr


def test_without_adapters_that_is_said(adapters: Adapters) -> None:
    adapters({})
    assert "no adapter is installed" in run("queue").stderr
    found = run("report", "--from", "slurm")
    assert found.exit_code == 2
    assert "once its adapter is installed" in found.stderr


def test_what_an_adapter_lacks_is_named_with_its_extra(adapters: Adapters) -> None:
    adapters({"slurm": lacking})
    found = run("queue", "--from", "slurm")
    assert found.exit_code == 2
    assert "pip install 'precision-time[slurm]'" in found.stderr


def test_a_queue_is_added_to_the_report_of_a_file(
    adapters: Adapters, jobs: str, fitted: Fitted
) -> None:
    adapters({"slurm": lambda: LIVE})
    words = (
        "--from",
        jobs,
        "--since",
        "2025-01-06T00:00+00:00",
        "--until",
        "2025-01-06T01:00+00:00",
        "--format",
        "json",
    )
    found = run("report", *words, "--queue", "slurm")
    assert found.exit_code == 0, found.output
    said = json.loads(found.stdout)
    assert [one["job_id"] for one in said["queue"]] == ["20"]
    assert said["hours"]["running"] == pytest.approx(4 * 30 / 3600)
    assert said["capacity"] == pytest.approx(4)


def test_a_report_is_made_also_where_the_queue_cannot_be_read(
    adapters: Adapters, jobs: str
) -> None:
    adapters({"slurm": away})
    found = run("report", "--from", jobs, "--queue", "slurm")
    assert found.exit_code == 0
    assert "the report has no queue: slurmctld does not answer" in found.stderr
    found = run("report", "--from", jobs, "--queue", "pbs")
    assert found.exit_code == 2
    assert "expected one of slurm" in found.stderr
