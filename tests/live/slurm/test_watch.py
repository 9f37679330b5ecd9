"""`precision-time slurm watch` on running jobs of a real Slurm."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_plugin.mark import JobMark, parse_mark

from .cluster import SlurmCluster

ROOT = Path(__file__).parents[3]
OURS = JobMark(limit=60, p50_s=2400.0, job="model=resnet50 precision=amp")
# A job of 55 minutes to come, which says so as a training callback would, in a file of its own.
LATE = """\
#!/bin/sh
file=precision-time-steps.$SLURM_JOB_ID.json
if [ "${SLURM_ARRAY_TASK_ID:-1}" = 1 ]; then
    printf '{"v":1,"job_id":"%s","step":100,"total_steps":3300100,"step_s":0.001,"written_s":%s}' \\
        "$SLURM_JOB_ID" "$(date +%s)" > "$file.new" && mv "$file.new" "$file"
fi
touch "started.$SLURM_JOB_ID"
sleep 600
"""
# 55 min x (1 + 0.1 + 0.02) + 10 min and the seconds since the start, rounded up to 5 min
EXTENDED = "01:15:00"


@pytest.fixture
def policy(bench: SlurmCluster, tmp_path: Path) -> Path:
    path = tmp_path / "slurm.yaml"
    path.write_text("watch: {mode: apply}\n")
    return path


def test_a_late_job_gets_a_longer_limit_and_keeps_it(
    bench: SlurmCluster, user: str | None, policy: Path
) -> None:
    job_id = started(bench, user)
    mark(bench, job_id, OURS, 60)
    said = watch(bench, policy)
    assert f"job {job_id} of " in said
    assert "extend 1:00:00 -> 1:15:00" in said
    job = bench.job(job_id)
    assert job["TimeLimit"] == EXTENDED
    written = parse_mark(job["AdminComment"])
    assert written is not None
    assert (written.limit, written.first, written.job) == (75, 60, OURS.job)
    assert watch(bench, policy) == "0 limits changed\n"
    assert bench.job(job_id)["TimeLimit"] == EXTENDED


def test_the_limit_of_a_user_or_of_an_admin_is_never_touched(
    bench: SlurmCluster, user: str | None, policy: Path
) -> None:
    own = started(bench, user, "--time=60")
    bench.run("scontrol", "update", f"jobid={own}", f"admincomment={JobMark(p50_s=2400.0).text()}")
    changed = started(bench, user)
    mark(bench, changed, OURS, 50)
    strange = started(bench, user, "--time=60")
    assert watch(bench, policy) == "0 limits changed\n"
    limits = [bench.job(job_id)["TimeLimit"] for job_id in (own, changed, strange)]
    assert limits == ["01:00:00", "00:50:00", "01:00:00"]


def test_a_dry_run_changes_nothing(bench: SlurmCluster, user: str | None, policy: Path) -> None:
    job_id = started(bench, user)
    mark(bench, job_id, OURS, 60)
    assert "advice: extend 1:00:00 -> 1:15:00" in watch(bench, policy, "--dry-run")
    assert bench.job(job_id)["TimeLimit"] == "01:00:00"


def test_of_an_array_only_the_late_task_is_extended(
    bench: SlurmCluster, user: str | None, policy: Path
) -> None:
    """Its last task bears the number of the whole array, and here it is the late one."""
    array_id = started(bench, user, "--array=0-1", tasks=2)
    tasks = {job["ArrayTaskId"]: job for job in bench.jobs(array_id)}
    assert tasks["1"]["JobId"] == str(array_id)
    mark(bench, array_id, OURS, 60)
    assert f"job {array_id}_1 of " in watch(bench, policy)
    after = {job["ArrayTaskId"]: job["TimeLimit"] for job in bench.jobs(array_id)}
    assert after == {"0": "01:00:00", "1": EXTENDED}


def test_left_running_it_ends_when_asked_to(
    bench: SlurmCluster, user: str | None, policy: Path
) -> None:
    job_id = started(bench, user)
    mark(bench, job_id, OURS, 60)
    with subprocess.Popen(
        command(policy), env=bench.env, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as watcher:
        assert watcher.stdout is not None
        assert "extend 1:00:00 -> 1:15:00" in watcher.stdout.readline()
        watcher.terminate()
        assert watcher.wait(60) == 0


def started(bench: SlurmCluster, user: str | None, *options: str, tasks: int = 1) -> int:
    """A job that runs and has said how it does."""
    before = len(list(bench.work.glob("started.*")))
    job_id = bench.submit("--gres=gpu:1", *options, script=LATE, user=user).job_id
    bench.wait(job_id, ["RUNNING"])
    deadline = time.monotonic() + 60
    while len(list(bench.work.glob("started.*"))) < before + tasks:
        assert time.monotonic() < deadline, "the job did not start"
        time.sleep(0.1)
    return job_id


def mark(bench: SlurmCluster, job_id: int, decision: JobMark, limit_min: int) -> None:
    """What the hook would have written."""
    bench.run(
        "scontrol",
        "update",
        f"jobid={job_id}",
        f"timelimit={limit_min}",
        f"admincomment={decision.text()}",
    )


def command(policy: Path, *options: str) -> list[str]:
    program = "from slurm_plugin.cli.watch import watch; watch()"
    return [sys.executable, "-c", program, "--config", str(policy), *options]


def watch(bench: SlurmCluster, policy: Path, *options: str) -> str:
    """What one pass says."""
    done = subprocess.run(
        command(policy, "--once", *options),
        env=bench.env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
