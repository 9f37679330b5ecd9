"""The decision daemon beside a real slurmctld."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_process import DaemonProcess

from predictor.estimate.fitting import Fitted

from .cluster import SlurmCluster

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


def test_a_job_of_any_gpu_type_gets_the_limit_of_the_slowest_that_fits(
    daemon: DaemonProcess,
) -> None:
    stated = "model=resnet50 precision=amp epochs=5 samples=1281167 batch=256"

    def limit(gres: str) -> int:
        """Of a network never seen it may come later: on a busy machine it is asked for again."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            told = daemon.ask(stated, tres_per_node=f"gres/{gres}")
            if "time_limit" in told:
                return int(told["time_limit"])
        raise AssertionError(told)

    assert limit("gpu:1") > limit("gpu:a100:1") >= 1
