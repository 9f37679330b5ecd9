"""`precision-time slurm eta` on a real cluster: by what jobs print, and by a replay."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from predictor.cli.main import main

from .cluster import SlurmCluster

# Prints a counter every 0.2 s: 10 % is made after 4 s, all after 40 s.
FORMATS = {
    "tqdm": "printf '\\r%3d%%|###   | %d/200 [00:%02d<00:%02d,  5.00it/s, loss=0.5]' "
    "$((i / 2)) $i $((i / 5)) $(((200 - i) / 5))",
    "steps and seconds": 'echo "step $i/200 loss 0.5 step_time 0.2s"',
    "iteration of": 'echo "Iteration $i of 200, loss=0.51, 0.2 s/it"',
    "our own line": 'echo "precision-time: step=$i total_steps=200 step_s=0.2"',
}
OUTPUT = "--output=out-%j.txt"
SCRIPT = "#!/bin/sh\nfor i in $(seq 1 200); do {print}; sleep 0.2; done\n"


def _eta(*options: str) -> Mapping[str, Any]:
    done = CliRunner().invoke(main, ["slurm", "eta", "--format", "json", *options])
    assert done.exit_code == 0, done.output
    answer: Mapping[str, Any] = json.loads(done.stdout)
    return answer


def _of(answer: Mapping[str, Any], job_id: int) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(j for j in answer["jobs"] if j["job_id"] == str(job_id))
    return found


def _policy(path: Path) -> str:
    path.write_text("slurm: {source: text}\n")
    return str(path)


def test_running_jobs_end_when_their_output_says(
    here: SlurmCluster, user: str | None, tmp_path: Path, home: Path
) -> None:
    here.work.chmod(0o777)
    jobs = [
        here.submit(
            OUTPUT, "--gres=gpu:1", "--time=60", script=SCRIPT.format(print=print_), user=user
        ).job_id
        for print_ in FORMATS.values()
    ]
    for job in jobs:
        here.wait(job, ["RUNNING"])
    time.sleep(8.0)
    found = _eta("--config", _policy(tmp_path / "slurm.yaml"))
    ended = {}
    for job in jobs:
        eta = _of(found, job)
        assert eta["basis"].startswith("printed: step"), eta
        ended[job] = eta["end"]["expected_s"]
    for job in jobs:
        here.wait(job, timeout_s=120.0)
    for name, job in zip(FORMATS, jobs, strict=True):
        record = here.sacct(job, "end")
        end_s = _unix(record["end"])
        left_s = end_s - found["at_s"]
        assert abs(ended[job] - end_s) < 0.2 * left_s + 2.0, name


def _unix(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads as another user")
def test_root_follows_no_file_of_a_user(
    here: SlurmCluster, user: str | None, tmp_path: Path, home: Path
) -> None:
    here.work.chmod(0o777)
    secret = here.root / "secret.txt"
    secret.write_text("precision-time: step=7 total_steps=9 step_s=100\n")
    secret.chmod(0o600)
    link = (
        f"#!/bin/sh\nrm -f out-$SLURM_JOB_ID.txt\nln -s {secret} out-$SLURM_JOB_ID.txt\nsleep 20\n"
    )
    fifo = "#!/bin/sh\nrm -f out-$SLURM_JOB_ID.txt\nmkfifo out-$SLURM_JOB_ID.txt\nsleep 20\n"
    jobs = [
        here.submit(OUTPUT, "--gres=gpu:1", script=text, user=user).job_id for text in (link, fifo)
    ]
    for job in jobs:
        here.wait(job, ["RUNNING"])
    time.sleep(1.0)
    start = time.monotonic()
    found = _eta("--config", _policy(tmp_path / "slurm.yaml"))
    assert time.monotonic() - start < 10.0
    assert all("printed" not in _of(found, job)["basis"] for job in jobs)


def test_pending_jobs_start_when_those_before_them_end(
    here: SlurmCluster, user: str | None, tmp_path: Path, home: Path
) -> None:
    here.work.chmod(0o777)
    print_ = 'echo "precision-time: step=$i total_steps=200 step_s=0.2"'
    options = (OUTPUT, "--gres=gpu:a100:4", "--time=60")
    first = [
        here.submit(*options, script=SCRIPT.format(print=print_), user=user).job_id
        for _ in range(2)
    ]
    for job in first:
        here.wait(job, ["RUNNING"])
    waits = here.submit(*options, user=user).job_id
    held = here.submit("--hold", *options, user=user).job_id
    time.sleep(6.0)
    found = _eta("--config", _policy(tmp_path / "slurm.yaml"))
    soonest_s = min(_of(found, job)["end"]["expected_s"] for job in first)
    assert _of(found, waits)["start"]["expected_s"] == pytest.approx(soonest_s, abs=5.0)
    assert _of(found, held)["start"] is None
    assert "held" in _of(found, held)["basis"]
    assert {job["user"] for job in _eta("--user", "nobody-else")["jobs"]} == set()
    here.wait(waits, timeout_s=120.0)
    start_s = _unix(here.sacct(waits, "start")["start"])
    assert start_s - found["at_s"] == pytest.approx(soonest_s - found["at_s"], rel=0.3, abs=5.0)


def test_the_table_has_the_columns_of_squeue(
    here: SlurmCluster, user: str | None, tmp_path: Path, home: Path
) -> None:
    here.submit("--hold", "--gres=gpu:1", user=user)
    policy = _policy(tmp_path / "slurm.yaml")
    done = CliRunner().invoke(main, ["slurm", "eta", "--config", policy])
    assert done.exit_code == 0, done.output
    assert done.stdout.split()[:5] == ["JOBID", "USER", "NAME", "ST", "GPUS"]
