"""What runs and waits in a cluster, as objects of an API server tell it, and the reports of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from api_server_stand_in import JOBS, PODS, StandIn, served
from click.testing import CliRunner, Result
from ended_objects import condition, job, moment_s, of_job, pod, running
from gfd_nodes import a100, node
from k8s_configs import config_of

from k8s_extender.live_queue import read
from predictor.cli.main import main
from predictor.estimate.fitting import Fitted
from predictor.site.capacity.live import Live, LiveJob
from predictor.site.replay import Pool

A100, T4 = "a100-sxm4-80gb", "t4-16gb"
T4_ONLY = {"nodeSelector": {"nvidia.com/gpu.product": "Tesla-T4"}}
HOUR = 60.0


@pytest.fixture
def cluster() -> Iterator[StandIn]:
    with served() as stand_in:
        cordoned = a100("a100-2") | {"spec": {"unschedulable": True}}
        ready = {"type": "Ready", "status": "False"}
        lost = node("t4-9")
        lost["status"]["conditions"] = [ready]
        stand_in.fill([a100("a100-0"), a100("a100-1"), node("t4-0"), cordoned, lost])
        yield stand_in


@pytest.fixture
def reached(cluster: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """The cluster, which $KUBECONFIG names."""
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path)))
    return cluster


def queue_of(cluster: StandIn) -> Live:
    return read(cluster.client(), config_of({}), page=2)


def jobs_of(cluster: StandIn) -> dict[str, LiveJob]:
    return {job.request.name: job for job in queue_of(cluster).jobs}


def pending(name: str, **more: Any) -> dict[str, Any]:
    """A pod that no node has."""
    found = pod(name, node="", phase="Pending", ran=(1, None), **more)
    del found["status"]["startTime"]
    return found


def suspended(name: str, **more: Any) -> dict[str, Any]:
    found = job(name, **more)
    found["spec"]["suspend"] = True
    return found


def now_minute() -> float:
    return (time.time() - moment_s(0)) / 60


def capacity(*words: str) -> Result:
    return CliRunner().invoke(main, ["capacity", *words, "--format", "json"])


def at(minute: float) -> str:
    return datetime.fromtimestamp(moment_s(minute), UTC).isoformat()


def test_the_gpus_are_those_of_nodes_that_take_pods(cluster: StandIn) -> None:
    assert queue_of(cluster).pools == (
        Pool(name=A100, gpus=16, gpus_per_node=8),
        Pool(name=T4, gpus=4, gpus_per_node=4),
    )


def test_a_job_runs_with_its_pods_or_waits_for_them(cluster: StandIn) -> None:
    cluster.put(job("runs", pods=2, deadline_s=7200), JOBS)
    for i in range(2):
        cluster.put(running(f"runs-{i}", node=f"a100-{i}", owned=of_job("runs")), PODS)
    cluster.put(job("waits", pods=2), JOBS)
    for i in range(2):
        cluster.put(pending(f"waits-{i}", owned=of_job("waits")), PODS)
    found = jobs_of(cluster)
    runs, waits = found["runs"], found["waits"]
    assert (runs.start_s, runs.request.gpus, runs.request.gpu_type) == (moment_s(1), 16, A100)
    assert (runs.nodes, runs.limit_s, runs.request.account) == (2, 7200.0, "team")
    assert (waits.start_s, waits.request.gpus, waits.submit_s) == (None, 16, moment_s(0))
    assert waits.request.asked.startswith("model=resnet50 precision=mixed_fp16_fp32")


def test_the_type_is_told_where_only_one_will_do(cluster: StandIn) -> None:
    cluster.put(pending("any", gpus=2), PODS)
    cluster.put(pending("small", gpus=2, **T4_ONLY), PODS)
    found = jobs_of(cluster)
    assert (found["any"].request.gpu_type, found["small"].request.gpu_type) == ("", T4)


def test_what_only_nodes_away_could_run_is_told(cluster: StandIn) -> None:
    elsewhere = {"nodeSelector": {"kubernetes.io/hostname": "a100-2"}}  # which is cordoned
    cluster.put(pending("elsewhere", **elsewhere), PODS)
    cluster.put(pending("anywhere"), PODS)
    cluster.put(running("there", node="a100-2", **elsewhere), PODS)
    told = {name: bool(job.waits.never) for name, job in jobs_of(cluster).items()}
    assert told == {"elsewhere": True, "anywhere": False, "there": False}


def test_what_ended_or_serves_or_has_no_gpus_is_not_in_it(cluster: StandIn) -> None:
    cluster.put(job("done", ended=condition("Complete", 61)), JOBS)
    cluster.put(pod("done-0", owned=of_job("done")), PODS)
    cluster.put(pod("alone"), PODS)
    cluster.put(pending("cpu", gpus=0), PODS)
    serving = {"kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
    cluster.put(running("web-0", owned=serving), PODS)
    assert jobs_of(cluster) == {}


def test_an_attempt_that_failed_is_no_start(cluster: StandIn) -> None:
    cluster.put(job("again"), JOBS)
    cluster.put(pod("again-0", phase="Failed", owned=of_job("again")), PODS)
    cluster.put(pending("again-1", owned=of_job("again")), PODS)
    assert jobs_of(cluster)["again"].start_s is None


def test_a_part_that_has_gpus_runs_and_the_other_waits(cluster: StandIn) -> None:
    cluster.put(job("half", pods=3), JOBS)
    cluster.put(pod("half-0", owned=of_job("half")), PODS)
    cluster.put(running("half-1", owned=of_job("half")), PODS)
    cluster.put(pending("half-2", gpus=4, owned=of_job("half")), PODS)
    parts = queue_of(cluster).jobs
    assert {(part.job_id, part.start_s, part.request.gpus) for part in parts} == {
        ("uid-half", moment_s(1), 8),
        ("uid-half", None, 4),
    }


def test_a_suspended_job_waits_for_its_queue_or_else_for_a_person(cluster: StandIn) -> None:
    kueue = {"kueue.x-k8s.io/queue-name": "team-a"}
    cluster.put(suspended("queued", labels=kueue), JOBS)
    cluster.put(suspended("parked"), JOBS)
    found = jobs_of(cluster)
    assert (found["queued"].held, found["queued"].request.partition) == (False, "team-a")
    assert found["parked"].held


def test_a_higher_priority_goes_first(cluster: StandIn, reached: StandIn, fitted: Fitted) -> None:
    for name in ("b0", "b1"):
        cluster.put(running(name, node=f"a100-{name[1]}", activeDeadlineSeconds=HOUR * 60), PODS)
    for name, priority in (("low", 0), ("high", 1000)):
        cluster.put(pending(name, gpus=8, priority=priority), PODS)
    found = capacity("queue")
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)["queue"]
    assert [one["name"] for one in told] == ["high", "low"]


def test_the_report_of_a_cluster_as_it_is_now(reached: StandIn) -> None:
    until = now_minute()
    ended, began = until - 60, until - 120
    reached.put(job("done", ended=condition("Complete", ended)), JOBS)
    reached.put(pod("done-0", ran=(began, ended), owned=of_job("done")), PODS)
    reached.put(pod("bad", gpus=2, node="t4-0", ran=(ended, ended + 30), phase="Failed"), PODS)
    reached.put(running("now", gpus=4, ran=(ended, None)), PODS)
    reached.put(pending("waits"), PODS)
    found = capacity("report", "--from", "kubernetes", "--since", at(began), "--until", at(until))
    assert found.exit_code == 0, found.output
    said = json.loads(found.stdout)
    # the API server tells whole seconds
    assert said["hours"]["completed"] == pytest.approx(8, abs=8 / 3600)
    assert said["hours"]["failed"] == pytest.approx(1, abs=2 / 3600)
    assert said["hours"]["running"] == pytest.approx(4, abs=4 / 3600)
    assert said["gpus"] == {A100: 16, T4: 4}
    assert said["capacity"] == pytest.approx(20 * 2, abs=0.01)
    assert {one["key"] for one in said["splits"]["account"]} == {"team"}


def test_a_cluster_that_cannot_be_reached_is_named(
    reached: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached.stop()
    found = capacity("queue", "--from", "kubernetes")
    assert found.exit_code == 2
    assert "cannot be listed" in found.stderr
    reached.start()
    monkeypatch.setenv("KUBECONFIG", "/missing")
    found = capacity("queue", "--from", "kubernetes")
    assert "--kubeconfig=/missing" in found.stderr
