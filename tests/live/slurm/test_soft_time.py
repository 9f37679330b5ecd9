"""Soft time on a real Slurm: planned by TimeMin, grown by watch, ended by neither."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from predictor.estimate.fitting import Fitted
from slurm_plugin.mark import JobMark, parse_mark

from .cluster import SlurmCluster
from .daemon import PATIENT, PROGRAM, DecisionDaemon, install_hook
from .installation import Installation
from .tables import PARTITIONS, Bench
from .test_watch import ROOT, command

MODEL = "model=resnet50 precision=amp steps=500 batch=64"
MORE = "OverTimeLimit=30"


@pytest.fixture
def lenient(installation: Installation) -> Iterator[SlurmCluster]:
    """A cluster whose default partition lets jobs run 30 minutes past their limit.

    Backfill plans to the second: by whole minutes, a start is rounded down to the minute, and what
    fits before it depends on when in a minute the test begins.
    """
    gpu, *rest = PARTITIONS
    bench = Bench(accounting=False, partitions=(replace(gpu, more=MORE), *rest))
    exact = replace(bench, scheduler=(*bench.scheduler, "bf_resolution=1"))
    with SlurmCluster(installation, exact) as cluster:
        yield cluster


@pytest.mark.usefixtures("fitted")
def test_time_min_is_written_only_where_over_time_reaches_the_whole_limit(
    lenient: SlurmCluster, fitted: Fitted, session_home: Path, user: str | None
) -> None:
    soft = {"limits": {"rounding_min": 1, "floor_min": 1}, "soft_time": {"mode": "apply"}}
    daemon = DecisionDaemon(lenient, session_home, **soft)
    install_hook(lenient, daemon.socket, **PATIENT)
    ask = ("--hold", "--gres=gpu:a100:1", f"--comment={MODEL}")
    with daemon:
        short = lenient.submit(*ask, "--time=60", user=user)
        long = lenient.submit(*ask, "--time=600", user=user)
        other = lenient.submit(*ask, "--time=30", "--partition=short", user=user)
        signalled = lenient.submit(
            *ask, "--time=60", user=user, script="#!/bin/sh\n#SBATCH --signal=B:USR1@60\ntrue\n"
        )
    jobs = [lenient.job(job.job_id) for job in (short, long, other, signalled)]
    assert [job["TimeLimit"] for job in jobs] == ["01:00:00", "10:00:00", "00:30:00", "01:00:00"]
    assert [job["TimeMin"] for job in jobs] == ["00:30:00", "N/A", "N/A", "N/A"]
    mark = parse_mark(jobs[0]["AdminComment"])
    assert mark is not None
    assert (mark.soft, mark.cap, mark.own) == (30, 60.0, "60")
    assert any("backfill plans it as 0:30:00" in text for text in short.messages)


def test_a_soft_limit_grows_and_without_a_watcher_over_time_carries_the_job(
    lenient: SlurmCluster, tmp_path: Path, user: str | None
) -> None:
    policy = tmp_path / "slurm.yaml"
    policy.write_text(
        "soft_time: {mode: apply}\nlimits: {rounding_min: 1}\nwatch: {interval_s: 1}\n"
    )
    # Newer Slurms give what backfill starts all the time until `blocked` is planned to start.
    first = lenient.submit(
        "--gres=gpu:v100:4", "-wv1", "-t2", script="#!/bin/sh\nsleep 400\n", user=user
    )
    lenient.wait(first.job_id, ["RUNNING"])
    blocked = lenient.submit("--gres=gpu:v100:4", "-N2", "-t5", user=user)
    held = lenient.submit(
        "--hold",
        "--gres=gpu:v100:1",
        "-t20",
        "--time-min=1",
        script="#!/bin/sh\nsleep 190\n",
        user=user,
    )
    comment = JobMark(own="20", soft=1, cap=20.0, expected_s=50.0, upper_s=60.0).text()
    lenient.run("scontrol", "update", f"jobid={held.job_id}", f"admincomment={comment}")
    lenient.run("scontrol", "release", str(held.job_id))
    lenient.wait(held.job_id, ["RUNNING"])
    assert lenient.job(held.job_id)["TimeLimit"] == "00:01:00"
    assert lenient.job(blocked.job_id)["JobState"] == "PENDING"
    with subprocess.Popen(
        command(policy), env=lenient.env, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as watcher:
        assert watcher.stdout is not None
        assert re.search("extend 0:01:00 -> 0:0[23]:00", watcher.stdout.readline())
        watcher.send_signal(signal.SIGKILL)
    grown = lenient.job(held.job_id)
    mark = parse_mark(grown["AdminComment"])
    assert mark is not None
    assert grown["TimeLimit"] == f"00:{mark.soft:02d}:00"
    assert lenient.wait(held.job_id, timeout_s=240)["JobState"] == "COMPLETED"


def test_a_requeued_job_gets_its_whole_limit_back_and_grows_anew(
    lenient: SlurmCluster, session_home: Path, fitted: Fitted, user: str | None
) -> None:
    soft = {"limits": {"rounding_min": 1}, "soft_time": {"mode": "apply"}}
    daemon = DecisionDaemon(lenient, session_home, **soft, watch={"interval_s": 1})
    ask = ("--hold", "--requeue", "--gres=gpu:v100:1", "-wv1", "-t20", "--time-min=1")
    job = lenient.submit(*ask, script="#!/bin/sh\nsleep 300\n", user=user).job_id
    grown = JobMark(own="20", soft=2, cap=20.0, expected_s=50.0, upper_s=60.0).text()
    begins = ("scontrol", "update", f"jobid={job}")
    lenient.run("scontrol", "release", str(job))
    lenient.wait(job, ["RUNNING"])
    lenient.run(*begins, "timelimit=2", f"admincomment={grown}")  # as watch does
    lenient.run("scontrol", "requeue", str(job))
    lenient.wait(job, ["PENDING"])
    assert lenient.job(job)["TimeLimit"] == "00:02:00"
    with daemon:
        lenient.wait_until(lambda: lenient.job(job)["TimeLimit"] == "00:20:00")
        assert lenient.job(job)["TimeMin"] == "00:01:00"
        mark = parse_mark(lenient.job(job)["AdminComment"])
    assert mark is not None
    assert (mark.soft, mark.cap, mark.own) == (1, 20.0, "20")
    # what backfill makes of its TimeMin is again a limit that watch lets grow
    lenient.run(*begins, "starttime=now", "timelimit=1")
    lenient.wait(job, ["RUNNING"])
    pass_ = subprocess.run(
        command(daemon.policy, "--once"),
        env=lenient.env,
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert re.search("extend 0:01:00 -> 0:0[23]:00", pass_.stdout)


def test_check_says_how_far_over_time_reaches(lenient: SlurmCluster, tmp_path: Path) -> None:
    policy = tmp_path / "slurm.yaml"
    policy.write_text("soft_time: {mode: apply}\n")

    def line() -> str:
        argv = [str(PROGRAM), "slurm", "check", "--no-systemd", "--config", str(policy)]
        done = subprocess.run(argv, env=lenient.env, capture_output=True, text=True, check=False)
        return next(text for text in done.stdout.splitlines() if "soft time" in text)

    words = "soft time ends no job: gpu 30 min past the limit; `precision-time slurm watch` lets"
    assert line().split(maxsplit=1) == ["ok", f"{words} limits grow"]
    lenient.run("scontrol", "update", "partition=gpu", "overtimelimit=0")
    failed, _, why = line().partition(" ")
    assert failed == "FAILED"
    assert "no partition has an OverTimeLimit, so nothing is written" in why
