"""Where jobs go: mixed precision to tensor-core nodes, and nothing that a user chose is undone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from .cluster import SlurmCluster

MIXED = "--comment=model=resnet50 precision=amp epochs=3 samples=1281167 batch=256"
FULL = "--comment=model=resnet50 precision=fp32 epochs=3 samples=1281167 batch=256"
TENSOR_CORE_GPUS = 16
SLEEP = "#!/bin/sh\nsleep 60\n"

pytestmark = pytest.mark.usefixtures("deciding")


def fill(bench: SlurmCluster, user: str | None, count: int, *options: str) -> list[str]:
    """Queue jobs of one GPU; the nodes of those that run once all that can do."""
    ids = [
        bench.submit("--gres=gpu:1", *options, script=SLEEP, user=user).job_id for _ in range(count)
    ]
    bench.wait_until(lambda: states(bench, ids).count("PENDING") == 0 or settled(bench, ids))
    listed = bench.run("squeue", "-h", "-t", "R", "-o", "%N").stdout
    return listed.split()


def states(bench: SlurmCluster, ids: Sequence[int]) -> list[str]:
    listed = bench.run("squeue", "-h", "-o", "%T", f"--jobs={','.join(map(str, ids))}").stdout
    return listed.split()


def settled(bench: SlurmCluster, ids: Sequence[int]) -> bool:
    """True where the scheduler has said of all that wait why they do."""
    listed = bench.run(
        "squeue", "-h", "-t", "PD", "-o", "%r", f"--jobs={','.join(map(str, ids))}"
    ).stdout.split()
    return bool(listed) and set(listed) <= {"Resources", "Priority"}


def test_mixed_jobs_land_on_tensor_core_nodes_only(bench: SlurmCluster, user: str | None) -> None:
    nodes = fill(bench, user, TENSOR_CORE_GPUS + 2, MIXED)
    assert len(nodes) == TENSOR_CORE_GPUS
    assert set(nodes) == {"a1", "a2", "v1", "v2"}
    assert {bench.node_states()[name] for name in ("p1", "p2")} == {"idle"}


def test_bf16_jobs_land_where_bf16_runs_natively(bench: SlurmCluster, user: str | None) -> None:
    nodes = fill(bench, user, 6, MIXED.replace("amp", "bf16"))
    assert set(nodes) == {"a1", "a2"}


def test_full_precision_jobs_go_elsewhere_where_the_policy_says_so(
    bench: SlurmCluster, user: str | None, policy: Callable[..., None]
) -> None:
    policy(placement={"fp32": "avoid_tensor_cores"})
    assert set(fill(bench, user, 6, FULL)) == {"p1", "p2"}


def test_full_precision_jobs_go_anywhere_by_default(bench: SlurmCluster, user: str | None) -> None:
    queued = bench.submit("--hold", "--gres=gpu:1", FULL, user=user)
    assert bench.job(queued.job_id)["Features"] == "(null)"


def test_a_typed_gres_places_jobs_too(
    bench: SlurmCluster, user: str | None, policy: Callable[..., None]
) -> None:
    policy(placement={"method": "gres"})
    queued = bench.submit("--gres=gpu:2", MIXED, script=SLEEP, user=user)
    job = bench.wait(queued.job_id, ["RUNNING"])
    assert job["NodeList"][0] in "av"
    assert job["Features"] == "(null)"
    assert job["TresPerNode"].replace("/", ":") in ("gres:gpu:a100:2", "gres:gpu:v100:2")


@pytest.mark.parametrize(
    ("own", "allowed"),
    [
        ("ampere", {"a1", "a2"}),
        ("volta|pascal", {"v1", "v2"}),
        ("pascal", {"p1", "p2"}),
        ("gpu&volta", {"v1", "v2"}),
    ],
)
def test_the_users_own_constraint_holds(
    bench: SlurmCluster, user: str | None, own: str, allowed: set[str]
) -> None:
    queued = bench.submit("--gres=gpu:1", MIXED, f"--constraint={own}", script=SLEEP, user=user)
    job = bench.wait(queued.job_id, ["RUNNING"])
    assert job["NodeList"] in allowed
    assert own in job["Features"]


@pytest.mark.parametrize(
    "own",
    [
        ("--gres=gpu:p100:1",),
        ("--gres=gpu:1", "--nodelist=p1"),
        ("--gres=gpu:1", "--exclude=a1,a2,v1,v2"),
        ("--gres=gpu:1", "--constraint=pascal"),
    ],
    ids=" ".join,
)
def test_a_mixed_job_may_still_choose_a_node_without_tensor_cores(
    bench: SlurmCluster, user: str | None, own: tuple[str, ...]
) -> None:
    queued = bench.submit(*own, MIXED, script=SLEEP, user=user)
    assert bench.wait(queued.job_id, ["RUNNING"])["NodeList"] in ("p1", "p2")


@pytest.mark.parametrize(
    "options",
    [
        ("--gpus=2",),
        ("--gpus=a100:2",),
        ("--gpus=4", "--nodes=2"),
        ("--gpus-per-node=2", "--nodes=2"),
        ("--gpus-per-task=1", "--ntasks=2"),
        ("--gpus-per-socket=1", "--sockets-per-node=1"),
        ("--gres=gpu:v100:1", "--constraint=volta"),
        ("--gres=gpu:4", "--exclusive"),
        ("--gres=gpu:4", "--nodes=6"),
        ("--gres=gpu:1", "--nodes=2", "--constraint=[ampere|volta]"),
        ("--gres=gpu:1", "--nodes=2", "--constraint=[pascal*1&volta*1]"),
        ("--gres=gpu:1", "--partition=short,gpu"),
        ("--gres=gpu:1", "--partition=nolimit", "--time=UNLIMITED"),
        ("--gres=gpu:1", "--time-min=5"),
        ("--gres=gpu:1", "--dependency=singleton", "--job-name=one"),
        ("--gres=gpu:1", "--mem=1G", "--cpus-per-task=4"),
    ],
    ids=" ".join,
)
def test_what_slurm_takes_without_us_it_takes_with_us(
    bench: SlurmCluster, user: str | None, options: tuple[str, ...]
) -> None:
    job = bench.wait(bench.submit(*options, MIXED, user=user).job_id)
    assert job["JobState"] == "COMPLETED"


@pytest.mark.parametrize(
    "comment",
    [
        "model=resnet50' precision=\"amp epochs=3",
        "model=resnet50 precision=amp epochs=3 samples=1281167 batch=256 note=100%s%n%d",
        "model=$(touch owned) `touch owned`; touch owned",
        "model=resnet50\\ precision=amp\n[error] slurmctld: forged",
        "]] .. os.execute('touch owned') .. [[",
        "model=" + "x" * 900,
        "модель=resnet50 precision=混合 epochs=\u202e3",
        "model=resnet50 epochs=-1 batch=1e999 precision=NaN",
    ],
)
def test_no_comment_breaks_a_submit_or_is_run(
    bench: SlurmCluster, user: str | None, comment: str
) -> None:
    job = bench.wait(bench.submit("--gres=gpu:1", f"--comment={comment}", user=user).job_id)
    assert job["JobState"] == "COMPLETED"
    assert list(bench.root.rglob("owned")) == []
    assert not any(line.startswith("[error]") for line in bench.log().splitlines())
