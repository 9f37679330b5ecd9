"""The decision daemon beside a real slurmctld."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from daemon_process import DaemonProcess

from predictor.cli.main import main
from predictor.estimate.fitting import Fitted
from slurm_plugin.config import Slurm
from slurm_plugin.daemon.follow_ups import Followed, follow_up
from slurm_plugin.decide import LimitFollowUp

from .cluster import SlurmCluster

Command = Callable[..., str]


@pytest.fixture
def daemon(fitted: Fitted, here: SlurmCluster, tmp_path: Path) -> Iterator[DaemonProcess]:
    """The daemon of the command line, with the predictor of this test run."""
    patient = {"prediction_ms": 4000.0}
    daemon = DaemonProcess(tmp_path / "run", slurm={"refresh_s": 1.0}, daemon=patient)
    program = Path(sys.executable).with_name("precision-time")
    daemon.command = (str(program), "slurm", "daemon", "--config", str(daemon.policy))
    try:
        yield daemon.start()
    finally:
        daemon.close()


@pytest.fixture
def command(daemon: DaemonProcess) -> Command:
    """Run a command of the group against the daemon; what it prints."""

    def run(name: str, *words: str) -> str:
        whole = ("slurm", name, "--config", str(daemon.policy), *words)
        result = CliRunner().invoke(main, whole)
        assert result.exit_code == 0, result.output
        return result.stdout

    return run


def test_a_job_of_any_gpu_type_gets_the_limit_of_the_slowest_that_fits(command: Command) -> None:
    stated = "model=resnet50 precision=amp epochs=5 samples=1281167 batch=256"
    free, fast = (
        json.loads(command("decide", "--gres", gres, "--comment", stated, "--format", "json"))
        for gres in ("gpu:1", "gpu:a100:1")
    )
    assert free["time_limit"] > fast["time_limit"] >= 1


def test_the_nodes_are_listed_with_what_they_are_taken_for(
    here: SlurmCluster, command: Command
) -> None:
    rows = json.loads(command("nodes", "--format", "json"))
    with_gpus = {row["node"]: row for row in rows if row["gpus"]}
    assert {node.name for node in here.bench.nodes} == {row["node"] for row in rows}
    assert {bool(row["gpu"]) for row in with_gpus.values()} == {True}
    natively = {row["gpu"].split("-")[0]: row["natively"] for row in with_gpus.values()}
    assert natively["p100"] == []
    assert natively["v100"] == ["tensor_core"]
    assert "bf16" in natively["a100"]


def test_a_limit_is_raised_for_a_job_that_still_waits_with_the_old_one(here: SlurmCluster) -> None:
    job = here.submit("--hold", "--gres=gpu:1", "--time=60").job_id
    mark = 'precision-time v=1 limit=90 job: model=a "b" $(id)'
    change = LimitFollowUp(job_id=job, old_limit_min=60, time_limit_min=90, admin_comment=mark)
    assert follow_up(change, Slurm()) is Followed.CHANGED
    assert here.job(job)["TimeLimit"] == "01:30:00"
    assert here.job(job)["AdminComment"] == mark
    assert follow_up(change, Slurm()) is Followed.LEFT
    assert here.job(job)["TimeLimit"] == "01:30:00"


def test_the_limit_of_a_running_job_is_left(here: SlurmCluster) -> None:
    job = here.submit("--gres=gpu:1", "--time=60", script="#!/bin/sh\nsleep 60\n").job_id
    here.wait(job, {"RUNNING"})
    change = LimitFollowUp(job_id=job, old_limit_min=60, time_limit_min=90, admin_comment="")
    assert follow_up(change, Slurm()) is Followed.LEFT
    assert here.job(job)["TimeLimit"] == "01:00:00"


def test_a_name_of_a_job_cannot_pass_for_its_state(here: SlurmCluster) -> None:
    name = "x JobState=PENDING TimeLimit=01:00:00"
    job = here.submit("-J", name, "--time=30", "--hold").job_id
    change = LimitFollowUp(job_id=job, old_limit_min=60, time_limit_min=90, admin_comment="")
    assert follow_up(change, Slurm()) is Followed.LEFT
