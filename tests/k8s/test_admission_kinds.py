"""Every kind of object that makes training pods is filled in its own places."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from admission_reviews import OURS, STATED, admitted, applied, knowledge, manifest, nodes
from k8s_configs import pod_job

from k8s_extender.admission import Admission
from k8s_extender.decide import Decider
from k8s_extender.pods import PODS, VOLCANO
from k8s_extender.workload import template_job
from predictor.estimate.fitting import Fitted

from admission_reviews import A100, V100  # isort: skip

DURATION, BASIS = f"{OURS}predicted-duration", f"{OURS}predicted-basis"
KINDS = ("job", "pytorchjob", "jobset", "rayjob")


@pytest.fixture(scope="module")
def known(fitted: Fitted) -> Decider:
    return knowledge(fitted, nodes(fast=A100, slow=V100))


def complete(name: str) -> dict[str, Any]:
    """A manifest of which everything is stated, on any node."""
    obj = manifest(name)
    obj["metadata"]["annotations"] = dict(STATED)
    if "entrypoint" in obj["spec"]:  # which states another batch size
        obj["spec"]["entrypoint"] = "python train.py"
    for template in templates(obj):
        template.pop("metadata", None)
        template["spec"].pop("nodeSelector", None)
    return obj


def templates(obj: dict[str, Any]) -> list[dict[str, Any]]:
    """The pod templates with GPUs."""
    spec = obj["spec"]
    found: list[dict[str, Any]] = {
        "Job": lambda: [spec["template"]],
        "PyTorchJob": lambda: [r["template"] for r in spec["pytorchReplicaSpecs"].values()],
        "JobSet": lambda: [spec["replicatedJobs"][1]["template"]["spec"]["template"]],
        "RayJob": lambda: [spec["rayClusterSpec"]["workerGroupSpecs"][0]["template"]],
        "Workload": lambda: [spec["podSets"][0]["template"]],
    }[obj["kind"]]()
    return found


def deadline_places(obj: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects that hold a deadline, one for each kind but a JobSet."""
    spec = obj["spec"]
    if obj["kind"] == "JobSet":
        return [job["template"]["spec"] for job in spec["replicatedJobs"]]
    return [spec["runPolicy"] if obj["kind"] == "PyTorchJob" else spec]


@pytest.mark.parametrize("name", KINDS)
def test_a_deadline_goes_where_the_kind_has_it(known: Decider, name: str) -> None:
    obj = complete(name)
    stored = admitted(known, obj).object
    found = [place.get("activeDeadlineSeconds") for place in deadline_places(stored)]
    assert found[-1] > 600
    # A driver without GPUs ends with its JobSet: no deadline of its own.
    assert found[:-1] == [None] * (len(found) - 1)


@pytest.mark.parametrize("name", KINDS)
def test_object_and_templates_are_annotated(known: Decider, name: str) -> None:
    stored = admitted(known, complete(name)).object
    outer = stored["metadata"]["annotations"]
    assert {DURATION, BASIS} <= outer.keys()
    for template in templates(stored):
        inner = template["metadata"]["annotations"]
        assert inner.items() >= STATED.items()
        assert (inner[DURATION], inner[BASIS]) == (outer[DURATION], outer[BASIS])


@pytest.mark.parametrize("name", KINDS)
def test_an_own_deadline_of_any_kind_is_kept(known: Decider, name: str) -> None:
    obj = complete(name)
    for place in deadline_places(obj):
        place["activeDeadlineSeconds"] = 86400
    stored = admitted(known, obj).object
    assert [p["activeDeadlineSeconds"] for p in deadline_places(stored)] == [
        86400 for _ in deadline_places(obj)
    ]


@pytest.mark.parametrize("name", KINDS)
def test_a_second_review_of_any_kind_changes_nothing(known: Decider, name: str) -> None:
    first = admitted(known, complete(name))
    assert first.operations
    assert not admitted(known, copy.deepcopy(first.object)).operations


@pytest.mark.parametrize("name", KINDS)
def test_what_kueue_makes_of_any_kind_knows_the_limit_by_its_label(
    known: Decider, name: str
) -> None:
    obj = complete(name)
    obj["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    stored = admitted(known, obj).object
    filled = deadline_places(stored)[-1]["activeDeadlineSeconds"]
    assert stored["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] == str(filled)


def test_a_pytorch_job_without_a_run_policy_gets_one(known: Decider) -> None:
    obj = complete("pytorchjob")
    del obj["spec"]["runPolicy"]
    run_policy = admitted(known, obj).object["spec"]["runPolicy"]
    assert run_policy.keys() == {"activeDeadlineSeconds"}


def test_every_job_of_a_job_set_with_gpus_gets_the_deadline(known: Decider) -> None:
    obj = complete("jobset")
    second = copy.deepcopy(obj["spec"]["replicatedJobs"][1]) | {"name": "more-workers"}
    obj["spec"]["replicatedJobs"].append(second)
    driver, *workers = deadline_places(admitted(known, obj).object)
    assert "activeDeadlineSeconds" not in driver
    assert len({worker["activeDeadlineSeconds"] for worker in workers}) == 1


def test_a_deadline_on_one_job_of_a_job_set_settles_the_others(known: Decider) -> None:
    obj = complete("jobset")
    second = copy.deepcopy(obj["spec"]["replicatedJobs"][1]) | {"name": "more-workers"}
    second["template"]["spec"]["activeDeadlineSeconds"] = 86400
    obj["spec"]["replicatedJobs"].append(second)
    found = [p.get("activeDeadlineSeconds") for p in deadline_places(admitted(known, obj).object)]
    assert found == [None, None, 86400]


def test_the_whole_of_a_job_is_priced(known: Decider) -> None:
    said = {name: admitted(known, complete(name)).said for name in KINDS}
    for name, gpus in {"job": 8, "pytorchjob": 32, "jobset": 32, "rayjob": 8}.items():
        assert f", {gpus}x {V100.product}" in said[name]


def pod_of(template: dict[str, Any]) -> dict[str, Any]:
    """A pod as the owner of a template makes it, without the labels that an owner may add."""
    return {"metadata": template["metadata"], "spec": template["spec"]}


@pytest.mark.parametrize("name", KINDS)
def test_a_pod_knows_by_its_template_how_large_its_job_is(known: Decider, name: str) -> None:
    obj = complete(name)
    whole = template_job(obj["kind"], obj, known.config)
    assert whole is not None
    for template in templates(admitted(known, obj).object):
        part = pod_job(pod_of(template), known.config)
        assert part is not None
        assert part.gpus == whole.gpus


def test_pods_of_another_size_count_the_job_in_pods_like_themselves(known: Decider) -> None:
    obj = complete("pytorchjob")
    master = obj["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    for part in ("limits", "requests"):
        if "nvidia.com/gpu" in master["resources"].get(part, {}):
            master["resources"][part]["nvidia.com/gpu"] = "4"
    whole = template_job("PyTorchJob", obj, known.config)
    assert whole is not None
    first, second = templates(admitted(known, obj).object)
    counts = [pod_job(pod_of(t), known.config) for t in (first, second)]
    assert [c and c.gpus_per_pod for c in counts] == [4, 8]
    assert all(c is not None and abs(c.gpus - whole.gpus) <= 4 for c in counts)


def test_a_number_of_pods_that_the_user_states_is_kept(known: Decider) -> None:
    obj = complete("pytorchjob")
    obj["metadata"]["annotations"][PODS] = "2"
    for template in templates(admitted(known, obj).object):
        assert template["metadata"]["annotations"][PODS] == "2"


def test_a_job_of_one_pod_or_of_pods_that_train_apart_states_no_number(known: Decider) -> None:
    obj = complete("job")
    obj["spec"] |= {"completions": 8, "parallelism": 8, "completionMode": "NonIndexed"}
    (template,) = templates(admitted(known, obj).object)
    assert PODS not in template["metadata"]["annotations"]


def test_a_manifest_as_people_write_it_is_understood(known: Decider) -> None:
    for name in ("job", "rayjob"):
        assert "resnet50" in admitted(known, manifest(name)).said


def test_a_workload_is_annotated_and_otherwise_left_to_kueue(known: Decider) -> None:
    obj = complete("workload")
    found = admitted(known, obj)
    assert DURATION in found.annotations
    assert found.object["spec"] == obj["spec"]


def test_a_workload_that_kueue_made_of_a_job_is_left_alone(known: Decider) -> None:
    obj = complete("workload")
    obj["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "controller": True}
    ]
    assert not admitted(known, obj).operations


def test_a_job_of_a_job_set_is_left_to_the_job_set(known: Decider) -> None:
    obj = complete("job")
    obj["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "name": "s",
            "controller": True,
        }
    ]
    assert not admitted(known, obj).operations


def test_a_job_of_a_cron_job_is_filled(known: Decider) -> None:
    obj = complete("job")
    obj["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "controller": True}
    ]
    assert admitted(known, obj).object["spec"]["activeDeadlineSeconds"] > 600


def test_a_kind_of_another_group_is_left_alone(known: Decider) -> None:
    group = {"group": "batch.volcano.sh", "version": "v1alpha1", "kind": "Job"}
    assert not admitted(known, complete("job"), kind=group).operations


def gpu_template(command: list[str], gpus: int = 1) -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return {"spec": {"containers": [{"name": "c", "command": command, "resources": resources}]}}


def operated(kind: str) -> dict[str, Any]:
    """A whole job of a kind without a manifest here, which states everything."""
    launcher = {"spec": {"containers": [{"name": "l", "command": ["mpirun", "python", "t.py"]}]}}
    roles = {
        "Launcher": {"replicas": 1, "template": launcher},
        "Worker": {"replicas": 2, "template": gpu_template(["sshd"])},
    }
    trainer = {"numNodes": 2, "resourcesPerNode": {"limits": {"nvidia.com/gpu": "1"}}}
    tasks = [{"replicas": 1, "template": gpu_template(["python", "t.py"])}]
    version, spec = {
        "MPIJob": ("kubeflow.org/v2beta1", {"mpiReplicaSpecs": roles}),
        "TrainJob": ("trainer.kubeflow.org/v1alpha1", {"trainer": trainer}),
        VOLCANO: ("batch.volcano.sh/v1alpha1", {"tasks": tasks}),
    }[kind]
    metadata = {"name": "x", "annotations": dict(STATED)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def test_an_mpi_job_is_read_from_launcher_and_workers(known: Decider) -> None:
    obj = operated("MPIJob")
    job = template_job("MPIJob", obj, known.config)
    assert job is not None
    assert (job.gpus_per_pod, job.pods) == (1, 2)
    stored = admitted(known, obj).object
    assert stored["spec"]["runPolicy"]["activeDeadlineSeconds"] > 600
    assert "annotations" not in stored["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]


@pytest.mark.parametrize("kind", ["MPIJob", "RayJob"])
def test_pods_know_of_their_job_what_another_program_starts(known: Decider, kind: str) -> None:
    words = ["python", "t.py", "--model", "resnet50", "--fp16", "--epochs", "9"]
    obj = operated(kind) if kind == "MPIJob" else complete("rayjob")
    del obj["metadata"]["annotations"]
    if kind == "MPIJob":
        roles = obj["spec"]["mpiReplicaSpecs"]
        roles["Launcher"]["template"]["spec"]["containers"][0]["command"] = ["mpirun", *words]
    else:
        obj["spec"]["entrypoint"] = " ".join(words)
    stored = admitted(known, obj).object["spec"]
    (worker,) = (
        [stored["mpiReplicaSpecs"]["Worker"]]
        if kind == "MPIJob"
        else stored["rayClusterSpec"]["workerGroupSpecs"]
    )
    found = pod_job(worker["template"], known.config)
    assert found is not None
    assert (found.stated.model, found.stated.values["epochs"]) == ("resnet50", 9)
    assert not found.annotated  # it was not the user who said so to us


def test_a_train_job_as_the_api_server_sends_it(known: Decider) -> None:
    name = "affinity-trainjob-admissionreview-request.json"
    raw = json.loads((Path(__file__).parent / "payloads" / "placement" / name).read_text())
    obj = raw["request"]["object"]
    obj["metadata"]["annotations"] = dict(STATED)
    job = template_job("TrainJob", obj, known.config)
    assert job is not None
    assert (job.gpus_per_pod, job.pods) == (1, 2)
    found = applied(Admission(lambda: known), raw, labelled=True)
    assert found.object["spec"]["activeDeadlineSeconds"] > 600
    assert found.object["spec"]["trainer"] == obj["spec"]["trainer"]


def test_volcano_and_kai_are_told_the_expected_run_time(known: Decider) -> None:
    stored = admitted(known, operated(VOLCANO)).object
    told = stored["metadata"]["annotations"][f"{OURS}expected-run-time"]
    assert stored["spec"]["runningEstimate"] == told
    queued = complete("job")
    queued["metadata"]["labels"] = {"kai.scheduler/queue": "research"}
    found = admitted(known, queued).annotations
    assert found["kai.scheduler/expected-runtime"] == found[f"{OURS}expected-run-time"]
