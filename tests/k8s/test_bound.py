"""Deadlines of ours follow where the pods went, and jobs keep off what others wait for."""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jsonpatch
import pytest
from admission_reviews import ALWAYS, BOTH, OURS, STATED, admitted, job, knowledge, pod
from api_server_stand_in import JOBS, PODS, eventually, kubeconfig, served
from gpu_jobs import MIXED, scores_of
from gpu_jobs import NODES as MANY
from gpu_jobs import job as pod_job_of
from k8s_configs import config_of
from k8s_metric_names import NoNodes
from k8s_server_process import CLUSTER, Installed
from test_admission_kinds import complete

from k8s_extender.admission.review import gpu_pod_sets
from k8s_extender.bound import BASIS, BoundPods, DeadlineChange
from k8s_extender.decide import Decider
from k8s_extender.plain import at
from k8s_extender.pods import GROUPS
from k8s_extender.server.service import ExtenderServer
from k8s_extender.workload import template_job
from k8s_extender.writeback import MOVED
from predictor.estimate.fitting import Fitted

START_S = 1_800_000_000.0
FILLED = f"{OURS}filled-deadline-seconds"


def stamp(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture(scope="module")
def known(fitted: Fitted) -> Decider:
    return knowledge(fitted, BOTH)


def filled(known: Decider, **more: Any) -> dict[str, Any]:
    """A Job as it runs after the webhook has filled its deadline."""
    found = admitted(known, job(**more)).object
    assert found["spec"]["activeDeadlineSeconds"]
    found["metadata"] |= {"uid": "uid-job", "name": "train", "namespace": "default"}
    return found | {"status": {"startTime": stamp(START_S)}}


def its_pod(node: str, after_s: float, index: int = 0) -> dict[str, Any]:
    """A pod of that Job on a node, started so long after the Job."""
    owner = {"kind": "Job", "name": "train", "uid": "uid-job", "controller": True}
    found = pod(uid=f"uid-{index}", name=f"train-{index}", ownerReferences=[owner])
    found["spec"]["nodeName"] = node
    return found | {"status": {"phase": "Running", "startTime": stamp(START_S + after_s)}}


def bound(*objects: dict[str, Any]) -> BoundPods:
    from kubernetes.client import ApiClient

    found = BoundPods(ApiClient())
    for obj in objects:
        if "containers" in obj["spec"]:
            found.pod(obj)
        else:
            found.job(obj["kind"], obj)
    return found


def test_the_pods_of_a_gang_are_those_of_its_indexed_job() -> None:
    """Of a JobSet's too, which says on its pods how many Jobs it made, not how many pods."""
    jobset = {"jobset.sigs.k8s.io/replicatedjob-replicas": "2"}
    indexed = {"completionMode": "Indexed", "parallelism": 4, "completions": 4}
    for labels, spec, gangs in (
        ({}, indexed, {"uid-job": 4}),
        (jobset, indexed, {"uid-job": 8}),
        (jobset, indexed | {"parallelism": 1, "completions": 1}, {"uid-job": 2}),
        ({}, indexed | {"completions": 8}, {}),  # one after another
        ({}, {"parallelism": 4, "completions": 4}, {}),
    ):
        found = job(spec=spec, labels=labels)
        found["metadata"]["uid"] = "uid-job"
        watched = bound(found)
        assert watched.gangs == gangs
        watched.job("Job", found, START_S)  # deleted
        assert watched.gangs == {}


def changes(known: Decider, *objects: dict[str, Any], at_s: float = 60.0) -> list[DeadlineChange]:
    return list(bound(*objects).changes(known, START_S + at_s))


def limit_on(known: Decider, fitted: Fitted, name: str) -> int:
    """The deadline that a job of one type alone is given."""
    alone = knowledge(fitted, {name: BOTH[name]})
    return int(filled(alone)["spec"]["activeDeadlineSeconds"])


def test_a_job_on_the_faster_gpu_gets_the_deadline_of_that_gpu_and_the_time_it_waited(
    known: Decider, fitted: Fitted
) -> None:
    obj = filled(known)
    (change,) = changes(known, obj, its_pod("fast", 500.0))
    slow_s, fast_s = (limit_on(known, fitted, name) for name in ("slow", "fast"))
    assert obj["spec"]["activeDeadlineSeconds"] == slow_s
    assert change.new_s == fast_s + 500
    assert change.new_s < change.old_s == slow_s
    made = template_job("Job", obj, known.config)
    assert made is not None
    (estimate,) = known.estimates(made, [BOTH["fast"].type])
    assert fast_s <= 2 * (estimate.total_s(0.95) or 0.0)


def test_the_patch_changes_the_deadline_and_says_for_which_gpu(known: Decider) -> None:
    obj = filled(known)
    (change,) = changes(known, obj, its_pod("fast", 0.0))
    after = jsonpatch.apply_patch(obj, change.patch)
    assert after["spec"]["activeDeadlineSeconds"] == change.new_s
    assert after["metadata"]["annotations"][FILLED] == str(change.new_s)
    product = BOTH["fast"].type.product
    assert after["metadata"]["annotations"][BASIS] == "-".join(product.split())
    assert changes(known, after, its_pod("fast", 0.0)) == []
    obj["spec"]["activeDeadlineSeconds"] += 1
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(obj, change.patch)


def test_a_pod_made_anew_on_a_slower_gpu_gets_its_time_back(known: Decider) -> None:
    obj = filled(known)
    (first,) = changes(known, obj, its_pod("fast", 0.0))
    after = jsonpatch.apply_patch(obj, first.patch)
    (second,) = changes(known, after, its_pod("slow", 4000.0, index=1), at_s=4001.0)
    assert second.new_s == obj["spec"]["activeDeadlineSeconds"] + 4000


def test_a_job_on_a_gpu_that_we_would_have_refused_gets_the_time_it_needs_there(
    fitted: Fitted,
) -> None:
    """With admission alone nothing keeps a pod off it."""
    known = knowledge(fitted, BOTH)
    obj = filled(known, annotations=STATED | {f"{OURS}precision": "bf16"})
    (change,) = changes(known, obj, its_pod("slow", 0.0))
    made = template_job("Job", obj, known.config)
    assert made is not None
    (estimate,) = known.estimates(made, [BOTH["slow"].type])
    assert change.new_s > (estimate.total_s(0.95) or 0.0) > change.old_s


def test_a_job_that_waits_is_not_ended_by_our_deadline(known: Decider) -> None:
    obj = filled(known)
    filled_s = obj["spec"]["activeDeadlineSeconds"]
    assert changes(known, obj, at_s=0.4 * filled_s) == []
    (change,) = changes(known, obj, at_s=0.6 * filled_s)
    assert change.new_s == pytest.approx(1.6 * filled_s, abs=1)
    assert change.basis == ""


def test_as_long_as_not_all_pods_run_the_job_counts_as_waiting(known: Decider) -> None:
    obj = filled(known, spec={"parallelism": 2, "completions": 2, "completionMode": "Indexed"})
    assert changes(known, obj, its_pod("fast", 5.0)) == []
    (change,) = changes(known, obj, its_pod("fast", 5.0), its_pod("slow", 9.0, index=1))
    assert change.basis.count(",") == 1


@pytest.mark.parametrize(
    "own",
    [
        {"spec": {"activeDeadlineSeconds": 7200}},
        {"annotations": STATED | {f"{OURS}deadline": "9h"}},
    ],
)
def test_what_the_user_said_is_left_alone(known: Decider, own: dict[str, Any]) -> None:
    obj = admitted(known, job(**own)).object
    obj["metadata"] |= {"uid": "uid-job", "name": "train"}
    obj["status"] = {"startTime": stamp(START_S)}
    assert changes(known, obj, its_pod("fast", 0.0)) == []
    assert changes(known, obj, at_s=10**6) == []


def operated(kind: str, known: Decider) -> tuple[dict[str, Any], dict[str, Any]]:
    """What an operator runs, filled by the webhook, and the owner of its pods."""
    obj = admitted(known, complete(kind.lower())).object
    obj["metadata"] |= {"uid": "uid-job", "name": "train", "namespace": "default"}
    obj["status"] = {"startTime": stamp(START_S)}
    owner = {"kind": kind, "name": "train", "uid": "uid-job", "controller": True}
    if kind == "RayJob":
        obj["status"]["rayClusterName"] = "train-x"
        owner |= {"kind": "RayCluster", "name": "train-x", "uid": "uid-cluster"}
    return obj, owner


@pytest.mark.parametrize("kind", ["PyTorchJob", "RayJob"])
def test_what_an_operator_runs_gets_the_deadline_of_the_gpus_of_all_its_pods(
    known: Decider, kind: str
) -> None:
    obj, owner = operated(kind, known)
    place = ("spec", "runPolicy") if kind == "PyTorchJob" else ("spec",)
    found = gpu_pod_sets(GROUPS[kind], kind, obj, known.config.hardware.resources)
    pods = [its_pod("fast", 500.0, index=i) for i in range(sum(one.count for one in found))]
    for one in pods:
        one["metadata"]["ownerReferences"] = [owner]
    head = its_pod("cpu", 0.0, index=99)
    head["metadata"]["ownerReferences"] = [owner]
    head["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1"}}
    assert changes(known, obj, head, *pods[1:]) == []
    (change,) = changes(known, obj, head, *pods)
    after = jsonpatch.apply_patch(obj, change.patch)
    assert at(after, *place, "activeDeadlineSeconds") == change.new_s < change.old_s
    assert changes(known, after, head, *pods) == []
    ended = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    obj["status"] |= ended if kind == "PyTorchJob" else {"jobDeploymentStatus": "Complete"}
    assert changes(known, obj, head, *pods) == []


@pytest.mark.parametrize("condition", ["Complete", "Failed", "FailureTarget"])
def test_what_is_over_is_left_alone(known: Decider, condition: str) -> None:
    obj = filled(known)
    obj["status"]["conditions"] = [{"type": condition, "status": "True"}]
    assert changes(known, obj, its_pod("fast", 0.0)) == []


def test_runs_one_after_another_keep_the_deadline_of_the_slowest(known: Decider) -> None:
    obj = filled(known, spec={"parallelism": 1, "completions": 3})
    assert changes(known, obj, its_pod("fast", 0.0)) == []


def test_a_bare_pods_deadline_is_only_lowered(known: Decider) -> None:
    def on(node: str) -> list[DeadlineChange]:
        obj = admitted(known, pod(uid="uid-p", name="alone")).object
        obj["spec"]["nodeName"] = node
        return changes(known, obj | {"status": {"phase": "Running", "startTime": stamp(START_S)}})

    (change,) = on("fast")
    assert change.name.kind == "Pod"
    assert change.new_s < change.old_s
    assert on("slow") == []


def test_pods_on_a_node_that_is_not_known_change_nothing(known: Decider) -> None:
    assert changes(known, filled(known), its_pod("young", 0.0)) == []


def test_what_has_gone_is_forgotten(known: Decider) -> None:
    obj, one = filled(known), its_pod("fast", 0.0)
    seen = bound(obj, one)
    seen.pod(one, START_S)
    assert list(seen.changes(known, START_S + 1)) == []
    seen.pod(one)
    seen.job("Job", obj, START_S)
    assert list(seen.changes(known, START_S + 1)) == []
    assert not seen._examined


def test_small_jobs_leave_the_gpus_that_others_wait_for(fitted: Fitted) -> None:
    config = config_of({"placement": {"balance": True}} | ALWAYS)
    decider = Decider(fitted.predictor, config, lambda: MANY)
    small = pod_job_of(MIXED)
    assert scores_of(decider, small, ["a1", "v1"]) == {"a1": 10, "v1": 5}
    bf16 = pod_job_of("model=bert-large precision=bf16-mixed batch=32 steps=7038")
    decider.waiting = [bf16]  # V100, P100 and T4 cannot run it
    found = scores_of(decider, small, ["a1", "v1"])
    assert found["v1"] > found["a1"]
    assert scores_of(decider, bf16, ["a1", "v1"])["a1"] == 10
    decider.waiting = []
    assert scores_of(decider, small, ["a1", "v1"]) == {"a1": 10, "v1": 5}


def test_only_pods_that_found_no_node_count_as_waiting(known: Decider) -> None:
    unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    young, late = (pod(uid=f"uid-{name}", name=name) for name in ("young", "late"))
    late["status"] = {"phase": "Pending", "conditions": [unplaced]}
    seen = bound(young, late)
    (one,) = seen.waiting(known)
    assert one.stated.model == "resnet50"
    late["spec"]["nodeName"] = "fast"
    seen.pod(late)
    assert seen.waiting(known) == []


def test_a_server_that_observes_follows_no_deadline(
    known: Decider, fitted: Fitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, changed = bound(filled(known), its_pod("fast", 0.0)), list[Any]()
    monkeypatch.setattr(seen, "start", lambda: None)
    writeback: Any = SimpleNamespace(changed=lambda change, lost: changed.append(change))
    here, nodes = {"host": "127.0.0.1", "port": 0, "metrics_port": None}, cast(Any, NoNodes())
    server = ExtenderServer(config_of({"server": here}), None, nodes, writeback, bound=seen)
    for mode, many in (("observe", 0), ("place", 1)):
        server._state.decider = knowledge(fitted, BOTH, mode=mode)
        server._follow()
        assert len(changed) == many
    server._sockets[0].close()


def test_the_server_brings_a_deadline_to_the_gpu_that_the_job_got(
    known: Decider, tmp_path: Path
) -> None:
    began_s = time.time()
    job, one = filled(known), its_pod("a100-0", 0.0)
    filled_s = job["spec"]["activeDeadlineSeconds"]
    job["status"]["startTime"], one["status"]["startTime"] = stamp(began_s - 100), stamp(began_s)
    with served() as api:
        api.fill(CLUSTER)
        api.put(job, JOBS)
        api.put(one, PODS)
        server = Installed(tmp_path / "s", evidence={"max_interval_ratio": 100})
        server.kubeconfig = kubeconfig(tmp_path, api.port)
        with contextlib.closing(server):
            server.start().wait_ready()
            jobs = api.collections[JOBS].objects
            assert eventually(lambda: jobs["train"]["spec"]["activeDeadlineSeconds"] != filled_s)
            assert eventually(lambda: bool(api.events))
            assert server.end() == 0
    assert jobs["train"]["spec"]["activeDeadlineSeconds"] < filled_s
    assert "A100" in jobs["train"]["metadata"]["annotations"][BASIS]
    (event,) = api.events.values()
    assert (event["reason"], event["involvedObject"]["kind"]) == (MOVED, "Job")
