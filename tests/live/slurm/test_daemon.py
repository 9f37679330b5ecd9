"""The decision daemon beside a real slurmctld."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from daemon_process import DaemonProcess

from predictor.cli.main import main
from predictor.estimate.fitting import Fitted

from .cluster import SlurmCluster

Command = Callable[..., str]
PATIENCE_S = 60.0


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

    def limit(gres: str) -> int:
        """Of a network never seen it may come later: on a busy machine it is asked for again."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            told = command("decide", "--gres", gres, "--comment", stated, "--format", "json")
            if "time_limit" in (found := json.loads(told)):
                return int(found["time_limit"])
        raise AssertionError(told)

    assert limit("gpu:1") > limit("gpu:a100:1") >= 1
