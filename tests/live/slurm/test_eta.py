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
from .daemon import DecisionDaemon
from .eta_jobs import Answer, EtaJobs, users
from .training import FORMATS

OUTPUT = "--output=out-%j.txt"
SECONDS = 40.0
# By the clock: a busy machine makes its steps no longer than it prints.
SCRIPT = """\
#!/bin/sh
began=$(date +%s%N); i=0
while [ $i -lt 200 ]; do sleep 0.2; i=$((($(date +%s%N) - began) / 200000000)); {print}; done
"""


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
    here: SlurmCluster, deciding: DecisionDaemon, session_home: Path
) -> None:
    """All formats at once, of several users, in short runs (benchmarks/slurm_eta.py: long)."""
    here.work.chmod(0o777)
    trainings, owners = EtaJobs(here, session_home, deciding.policy), users(8)
    jobs = [
        trainings.submit(form, 5 * at + 3, SECONDS, owners[at % len(owners)], OUTPUT)
        for at, form in enumerate(FORMATS)
    ]
    for job in jobs:
        here.wait(job.job_id, ["RUNNING"])
    time.sleep(0.5 * SECONDS)

    first: dict[int, Answer] = {}

    def all_printed() -> bool:
        trainings.ask()
        for job_id, (*_, said) in trainings.answers.items():
            if said.basis.startswith("printed: step"):
                first.setdefault(job_id, said)
        return len(first) == len(jobs)

    here.wait_until(all_printed, 0.4 * SECONDS)
    for job in jobs:
        here.wait(job.job_id, timeout_s=180.0)
    for job in jobs:
        (_, end_s), said = trainings.times(job), first[job.job_id]
        assert said.end_s == pytest.approx(end_s, abs=0.35 * (end_s - said.at_s) + 4.0), job.form


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
        f"#!/bin/sh\nrm -f out-$SLURM_JOB_ID.txt\nln -s {secret} out-$SLURM_JOB_ID.txt\nsleep 600\n"
    )
    fifo = "#!/bin/sh\nrm -f out-$SLURM_JOB_ID.txt\nmkfifo out-$SLURM_JOB_ID.txt\nsleep 600\n"
    jobs = [
        here.submit(OUTPUT, "--gres=gpu:1", script=text, user=user).job_id for text in (link, fifo)
    ]
    for job in jobs:
        here.wait(job, ["RUNNING"])
    linked, piped = (here.work / f"out-{job}.txt" for job in jobs)
    here.wait_until(lambda: linked.is_symlink() and piped.is_fifo())
    found = _eta("--config", _policy(tmp_path / "slurm.yaml"))  # waits at no fifo
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
    policy = _policy(tmp_path / "slurm.yaml")
    here.wait_until(
        lambda: all("printed" in _of(_eta("--config", policy), job)["basis"] for job in first)
    )
    found = _eta("--config", policy)
    soonest_s = min(_of(found, job)["end"]["expected_s"] for job in first)
    assert _of(found, waits)["start"]["expected_s"] == pytest.approx(soonest_s, abs=5.0)
    assert _of(found, held)["start"] is None
    assert "held" in _of(found, held)["basis"]
    assert {job["user"] for job in _eta("--user", "nobody-else")["jobs"]} == set()
    here.wait(waits, timeout_s=180.0)
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
