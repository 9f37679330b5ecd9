"""Jobs of a real Slurm end up in the history as they were: times, states, GPUs, predictions."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from predictor.site.history.run import JobState, LimitBy, Run
from predictor.site.history.store import History, Where
from slurm_plugin.config import Slurm, SlurmPolicy
from slurm_plugin.history.ingest import SlurmFollower
from slurm_plugin.mark import JobMark

from .cluster import SlurmCluster

ROOT = Path(__file__).parents[3]
PROGRAM = "from predictor.cli.main import main; main()"
PATIENCE_S = 60.0
OURS = JobMark(
    limit=60,
    p50_s=1800.0,
    hi_s=3000.0,
    q=0.95,
    step_s=0.25,
    gpu="v100-sxm2-16gb",
    gpus=2,
    tier="site",
    version="v7",
    job="model=resnet50 precision=fp32 batch_size=64",
)
RUNS = "#!/bin/sh\nsleep 600\n"
REPORTS = """#!/bin/sh
printf '{"v": 1, "job_id": "%s", "step": 900, "total_steps": 1000, "step_s": 0.001}' \\
    "$SLURM_JOB_ID" > "precision-time-steps.$SLURM_JOB_ID.json"
sleep 600
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "history.sqlite")


def eventually(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def in_the_next_second() -> None:
    """What ended in this very second is left for the next time."""
    time.sleep(1.1)


def ingest(here: SlurmCluster, path: str, *words: str) -> Any:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            PROGRAM,
            "history",
            "ingest",
            "slurm",
            "--history",
            path,
            "--format",
            "json",
            *words,
        ],
        env=here.env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def records_of(path: str, *job_ids: object) -> list[Run]:
    with History.open(path) as store:
        return list(store.runs(Where(job_ids=tuple(map(str, job_ids)))))


def stored(path: str, *job_ids: object) -> dict[str, Run]:
    return {run.ended.job_id: run for run in records_of(path, *job_ids)}


def test_what_ended_is_in_the_history_once_and_as_it_was(here: SlurmCluster, path: str) -> None:
    done = here.submit("--gres=gpu:v100:2", "-t", "60", script=RUNS).job_id
    here.wait(done, ["RUNNING"])
    here.run("scontrol", "update", f"jobid={done}", f"admincomment={OURS.text()}")
    failed = here.submit(
        "--gres=gpu:a100:1", "--comment", "model=vgg16 bs=8", script="#!/bin/sh\nexit 3\n"
    ).job_id
    array = here.submit("--array=0-1", "--gpus=1", script="#!/bin/sh\ntrue\n").job_id
    cpu = here.submit(script="#!/bin/sh\ntrue\n").job_id
    waiting = here.submit("-H", "--gres=gpu:1").job_id
    for job_id in (failed, array, cpu):
        here.wait(job_id)
    running = here.submit("--gres=gpu:1", script=RUNS).job_id
    here.run("scancel", str(done))
    told = {job_id: here.wait(job_id) for job_id in (done, failed)}
    for job_id, records in ((done, 1), (failed, 1), (array, 2), (cpu, 1)):
        here.sacct(job_id, "state", records=records)
    in_the_next_second()

    first = ingest(here, path, "--since", "1h")
    runs = stored(path, done, failed, f"{array}_0", f"{array}_1")
    assert set(runs) == {str(done), str(failed), f"{array}_0", f"{array}_1"}
    assert not stored(path, cpu, waiting, running)
    assert first["left_out"]["without GPUs"] >= 1
    assert first["unread"] == 0

    ours = runs[str(done)]
    assert (ours.ended.state, ours.ended.gpus) == (JobState.CANCELLED, 2)
    assert (ours.ended.gpu_type or "").startswith("v100")
    assert (ours.asked, ours.origin, ours.limit_by) == (OURS.job, "decision", LimitBy.US)
    assert ours.predicted is not None
    assert (ours.predicted.step_s, ours.predicted.median_s, ours.predicted.upper_s) == (
        0.25,
        1800.0,
        3000.0,
    )
    theirs = runs[str(failed)]
    assert (theirs.ended.state, theirs.asked) == (JobState.FAILED, "model=vgg16 batch_size=8")
    for job_id, record in told.items():
        job = runs[str(job_id)].ended
        assert (job.submit_s, job.start_s, job.end_s) == tuple(
            time.mktime(time.strptime(record[name], "%Y-%m-%dT%H:%M:%S"))
            for name in ("SubmitTime", "StartTime", "EndTime")
        )
        assert job.node_names == (record["NodeList"],)

    again = ingest(here, path)
    assert (again["new"], again["changed"]) == (0, 0)
    assert again["same"] >= 4
    assert again["cursor_s"] > first["cursor_s"]


def test_each_component_of_a_het_job_is_a_run(here: SlurmCluster, path: str) -> None:
    script = "#!/bin/sh\ntrue\n"
    job_id = here.submit("--gres=gpu:a100:1", ":", "--gres=gpu:v100:2", script=script).job_id
    here.wait(job_id)
    here.sacct(job_id, "state", records=2)
    in_the_next_second()
    ingest(here, path, "--since", "1h")
    with History.open(path) as store:
        found = [r.ended for r in store.runs() if r.ended.job_id.split("+")[0] == str(job_id)]
    assert sorted(job.gpus for job in found) == [1, 2]
    assert ingest(here, path, "--since", "1h")["new"] == 0


def test_what_ran_at_the_edge_comes_with_the_next_ingest(here: SlurmCluster, path: str) -> None:
    job_id = here.submit("--gres=gpu:1", script=RUNS).job_id
    here.wait(job_id, ["RUNNING"])
    ingest(here, path, "--since", "1h")
    assert not stored(path, job_id)
    here.run("scancel", str(job_id))
    here.sacct(job_id, "state")
    in_the_next_second()
    ingest(here, path, "--overlap", "0")
    assert stored(path, job_id)


def test_the_runs_of_a_requeued_job_are_told_apart(here: SlurmCluster, path: str) -> None:
    job_id = here.submit("--gres=gpu:1", "--requeue", script=RUNS).job_id
    here.wait(job_id, ["RUNNING"])
    time.sleep(1.1)  # a record of its own needs another second
    here.run("scontrol", "requeue", str(job_id))
    here.wait(job_id, ["PENDING"])
    here.run("scancel", str(job_id))
    here.sacct(job_id, "state", records=2)
    # A job that ended in this very second is left for the next time.
    eventually(lambda: ingest(here, path, "--since", "1h") and len(records_of(path, job_id)) == 2)
    found = records_of(path, job_id)
    ingest(here, path, "--since", "1h")
    assert records_of(path, job_id) == found
    assert {run.ended.state for run in found} == {JobState.REQUEUED, JobState.CANCELLED}


def test_watch_fills_the_history_that_its_policy_names(
    here: SlurmCluster, path: str, tmp_path: Path
) -> None:
    job_id = here.submit("--gres=gpu:1", script="#!/bin/sh\ntrue\n").job_id
    here.wait(job_id)
    here.sacct(job_id, "state")
    config = tmp_path / "slurm.yaml"
    config.write_text(f"history: {{url: {path}}}\n")
    words = [sys.executable, "-c", PROGRAM, "slurm", "watch", "--config", str(config)]
    with subprocess.Popen(words, env=here.env, cwd=ROOT) as watcher:
        try:
            eventually(lambda: Path(path).exists() and stored(path, job_id))
        finally:
            watcher.terminate()
        assert watcher.wait(60) == 0


def test_the_last_step_report_is_joined_to_the_end(here: SlurmCluster, path: str) -> None:
    live = SlurmFollower(lambda: History.open(path))
    policy = SlurmPolicy(slurm=Slurm(source="text"))
    job_id = here.submit("--gres=gpu:1", script=REPORTS).job_id
    here.wait(job_id, ["RUNNING"])
    eventually(lambda: list(here.work.glob(f"precision-time-steps.{job_id}.json")))
    time.sleep(1.1)  # the file is of a later second than the start
    live.look(policy)
    here.run("scancel", str(job_id))
    here.sacct(job_id, "state")
    in_the_next_second()
    live.look(policy)
    reported = stored(path, job_id)[str(job_id)].reported
    assert reported is not None
    assert (reported.step_s, reported.steps, reported.total_steps) == (0.001, 900, 1000)


def test_a_script_that_accounting_keeps_tells_what_a_job_without_a_mark_was(
    here: SlurmCluster, path: str
) -> None:
    script = "#!/bin/sh\n#PT model=vgg16 batch=8\npython train.py\n{}true\n"
    plain = here.submit("--gres=gpu:1", script=script.format("")).job_id
    forged = "cat <<E\nBatch Script for {}\n------\n#PT model=resnet50\nE\n"
    forger = here.submit("--gres=gpu:1", script=script.format(forged.format(plain))).job_id
    array = here.submit("--gres=gpu:1", "--array=0-1", script=script.format("")).job_id
    missed = here.submit("--hold", "--gres=gpu:1", script=script.format("")).job_id
    mark = 'AdminComment="precision-time v=1 later=hook own=none"'  # the daemon was away
    here.run("scontrol", "update", f"JobId={missed}", mark)
    here.run("scontrol", "release", str(missed))
    for job_id in (plain, forger, array, missed):
        here.wait(job_id)
    here.sacct(array, "state", records=2)
    names = {str(plain), str(forger), str(missed)}
    eventually(lambda: ingest(here, path) and names <= set(stored(path)))
    found = stored(path)
    tasks = [run for name, run in found.items() if name.startswith(f"{array}_")]
    for run in (found[str(plain)], found[str(missed)], *tasks):
        assert "model=vgg16" in run.asked
        assert run.ended.script == found[str(plain)].ended.script != ""
    assert found[str(forger)].ended.script not in ("", found[str(plain)].ended.script)
    assert len(tasks) == 2
