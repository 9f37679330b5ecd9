"""What a user sees at submit: limits are filled in, and what they asked for themselves is kept."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from slurm_plugin.mark import parse_mark

from .cluster import SlurmCluster

JOB = "model=resnet50 precision=amp epochs=3 samples=1281167 batch=256"
GPU_JOB = ("--gres=gpu:a100:2", f"--comment={JOB}")
DEFAULT_MIN, MAX_MIN, SHORT_MAX_MIN = 1440, 2880, 30

pytestmark = pytest.mark.usefixtures("deciding")


def minutes(text: str) -> float:
    """``1-02:03:00``, ``2:03:00``, ``03:00``, ``UNLIMITED`` in minutes."""
    if text == "UNLIMITED":
        return float("inf")
    days, _, clock = text.rpartition("-")
    hours, minute, second = ([0, *map(int, clock.split(":"))])[-3:]
    return int(days or 0) * 1440 + hours * 60 + minute + second / 60


def told(text: str) -> float:
    """The limit that the user was told of, in minutes."""
    found = re.search(r"precision-time: .*time limit set to ([-0-9:]+)", text)
    assert found, text
    return minutes(found[1])


def test_sbatch_gets_a_limit_that_squeue_scontrol_and_sacct_show(
    bench: SlurmCluster, user: str | None
) -> None:
    queued = bench.submit("--hold", *GPU_JOB, user=user)
    limit = told("\n".join(queued.messages))
    job = bench.job(queued.job_id)
    shown = bench.run("squeue", "-h", "-o", "%l", f"--jobs={queued.job_id}").stdout.strip()
    mark = parse_mark(job["AdminComment"])
    assert 1 <= limit < DEFAULT_MIN
    assert minutes(job["TimeLimit"]) == minutes(shown) == limit
    assert mark is not None
    assert mark.limit == limit
    bench.run("scontrol", "release", str(queued.job_id))
    bench.wait(queued.job_id)
    # slurmctld tells slurmdbd the limit some seconds after the end
    bench.wait_until(lambda: bool(bench.sacct(queued.job_id, "timelimitraw")["timelimitraw"]))
    recorded = bench.sacct(queued.job_id, "timelimitraw", "admincomment", "comment")
    assert recorded == {
        "timelimitraw": f"{limit:g}",
        "admincomment": job["AdminComment"],
        "comment": JOB,
    }


def test_srun_and_salloc_get_the_same_limit_as_sbatch(
    bench: SlurmCluster, user: str | None
) -> None:
    expected = told("\n".join(bench.submit("--hold", *GPU_JOB, user=user).messages))
    script = 'squeue -h -o %l --jobs="$SLURM_JOB_ID"'
    for command in ("srun", "salloc"):
        done = bench.run(command, *GPU_JOB, "sh", "-c", script, user=user)
        assert told(done.stderr) == expected
        assert minutes(done.stdout.strip()) == expected


@pytest.mark.parametrize("own", ["7", "1-12:00:00", "2-00:00:00"])
def test_a_limit_of_the_users_own_is_never_touched(
    bench: SlurmCluster, user: str | None, own: str
) -> None:
    queued = bench.submit("--hold", *GPU_JOB, f"--time={own}", user=user)
    expected = float(own) if own.isdigit() else minutes(own)
    assert minutes(bench.job(queued.job_id)["TimeLimit"]) == expected
    assert "time limit set" not in "\n".join(queued.messages)


def test_a_limit_of_the_users_own_that_is_too_short_is_pointed_out(
    bench: SlurmCluster, user: str | None
) -> None:
    long_job = JOB.replace("epochs=3", "epochs=90")
    queued = bench.submit("--hold", GPU_JOB[0], f"--comment={long_job}", "--time=5", user=user)
    assert any("your limit of 0:05:00" in line for line in queued.messages)


@pytest.mark.parametrize(
    ("options", "script", "env"),
    [
        ((f"--comment={JOB}",), "#!/bin/sh\ntorchrun --nproc-per-node 2 train.py\n", {}),
        ((), f"#!/bin/sh\n#PT {JOB}\ntorchrun --nproc-per-node 2 train.py\n", {}),
        ((), "#!/bin/sh\ntorchrun --nproc-per-node 2 train.py\n", {"PRECISION_TIME": JOB}),
        (
            (f"--comment={JOB.replace('batch=256', '')}",),
            "#!/bin/sh\ntorchrun --nproc-per-node 2 train.py\n",
            {"PRECISION_TIME_BATCH_SIZE": "256"},
        ),
    ],
    ids=["comment", "script", "environment", "comment and environment"],
)
def test_a_job_may_be_described_where_its_user_likes(
    bench: SlurmCluster,
    user: str | None,
    options: tuple[str, ...],
    script: str,
    env: dict[str, str],
) -> None:
    expected = told("\n".join(bench.submit("--hold", *GPU_JOB, user=user).messages))
    words = ("--hold", GPU_JOB[0], *options)
    queued = bench.submit(*words, script=script, user=user, env=env)
    assert told("\n".join(queued.messages)) == expected
    assert minutes(bench.job(queued.job_id)["TimeLimit"]) == expected


def test_every_task_of_an_array_gets_the_limit(bench: SlurmCluster, user: str | None) -> None:
    queued = bench.submit("--array=0-3", *GPU_JOB, user=user, script="#!/bin/sh\nsleep 30\n")
    bench.wait(queued.job_id, ["RUNNING"])
    limit = told("\n".join(queued.messages))
    assert len([line for line in queued.messages if "time limit set" in line]) == 1
    tasks = bench.jobs(queued.job_id)
    assert len(tasks) > 1
    assert {minutes(task["TimeLimit"]) for task in tasks} == {limit}


def test_each_part_of_a_heterogeneous_job_gets_its_own_limit(
    bench: SlurmCluster, user: str | None
) -> None:
    second = (
        "--gres=gpu:v100:1",
        "--comment=model=resnet18 precision=fp32 epochs=5 samples=1281167 batch=128",
    )
    queued = bench.submit("--hold", *GPU_JOB, ":", *second, ":", "--partition=cpu", user=user)
    parts = bench.jobs(queued.job_id)
    alone = [
        told("\n".join(bench.submit("--hold", *part, user=user).messages))
        for part in (GPU_JOB, second)
    ]
    assert [minutes(part["TimeLimit"]) for part in parts] == [*alone, 60]
    assert alone[0] != alone[1]


@pytest.mark.parametrize("comment", ["model=nonesuch9000 precision=amp epochs=3", "Model=?"])
def test_an_unknown_model_keeps_the_default_and_its_user_is_told(
    bench: SlurmCluster, user: str | None, comment: str
) -> None:
    queued = bench.submit("--hold", "--gres=gpu:1", f"--comment={comment}", user=user)
    assert minutes(bench.job(queued.job_id)["TimeLimit"]) == DEFAULT_MIN
    assert any("precision-time" in line and "model" in line for line in queued.messages)


def test_jobs_that_say_nothing_of_a_model_pass_with_one_line_and_cpu_jobs_in_silence(
    bench: SlurmCluster, user: str | None
) -> None:
    for options in (
        ("--gres=gpu:1",),
        ("--comment=night run", "--gres=gpu:2"),
        ("--partition=cpu", f"--comment={JOB}"),
    ):
        queued = bench.submit("--hold", *options, user=user)
        on_gpus = "--partition=cpu" not in options
        assert len([line for line in queued.messages if line]) == on_gpus
        expected = DEFAULT_MIN if on_gpus else 60
        assert minutes(bench.job(queued.job_id)["TimeLimit"]) == expected


def test_no_limit_is_above_the_max_time_of_the_partition(
    bench: SlurmCluster, user: str | None
) -> None:
    endless = (
        "--gres=gpu:v100:1",
        "--comment=model=resnet50 precision=fp32 epochs=300 samples=1281167 batch=64",
    )
    caps = {"gpu": MAX_MIN, "short": SHORT_MAX_MIN}
    for partition, cap in caps.items():
        queued = bench.submit(f"--partition={partition}", *endless, user=user)
        job = bench.job(queued.job_id)
        assert minutes(job["TimeLimit"]) == cap
        assert job["Reason"] != "PartitionTimeLimit"
        assert any("the longest there is here" in line for line in queued.messages)
    unbounded = bench.submit("--hold", "--partition=nolimit", *endless, user=user)
    assert MAX_MIN < minutes(bench.job(unbounded.job_id)["TimeLimit"]) < float("inf")


def test_the_limit_follows_when_a_waiting_job_is_changed(
    bench: SlurmCluster, user: str | None
) -> None:
    queued = bench.submit("--hold", *GPU_JOB, user=user)
    before = minutes(bench.job(queued.job_id)["TimeLimit"])
    longer = JOB.replace("epochs=3", "epochs=9")
    bench.run("scontrol", "update", f"jobid={queued.job_id}", f"comment={longer}", user=user)
    bench.wait_until(lambda: minutes(bench.job(queued.job_id)["TimeLimit"]) > before)
    mark = parse_mark(bench.job(queued.job_id)["AdminComment"])
    assert mark is not None
    assert mark.limit == minutes(bench.job(queued.job_id)["TimeLimit"])


def test_a_changed_job_keeps_a_limit_of_the_users_own(
    bench: SlurmCluster, user: str | None
) -> None:
    queued = bench.submit("--hold", *GPU_JOB, "--time=20", user=user)
    longer = JOB.replace("epochs=3", "epochs=9")
    bench.run("scontrol", "update", f"jobid={queued.job_id}", f"comment={longer}", user=user)
    marker = bench.submit("--hold", *GPU_JOB, user=user)  # decided after the change
    assert marker.messages
    assert minutes(bench.job(queued.job_id)["TimeLimit"]) == 20


def test_warn_only_tells_and_changes_nothing(
    bench: SlurmCluster, user: str | None, policy: Callable[..., None]
) -> None:
    policy(limits={"mode": "warn"}, placement={"mode": "advise"})
    queued = bench.submit("--hold", "--gres=gpu:1", f"--comment={JOB}", user=user)
    job = bench.job(queued.job_id)
    assert minutes(job["TimeLimit"]) == DEFAULT_MIN
    assert job["Features"] == "(null)"
    assert any("resnet50" in line for line in queued.messages)
