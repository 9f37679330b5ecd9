"""Deadlines of ours on a real control plane, once the pods of real Jobs have their GPUs.

Skipped where KUBE_ASSETS_DIR does not name the programs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

import pytest
from chart_render import render
from gfd_nodes import a100
from kubernetes import client
from test_admission_kinds import complete, operated

from k8s_extender.bound import BASIS
from k8s_extender.config import Config
from k8s_extender.decide import Decider
from k8s_extender.nodes import gpu_node
from k8s_extender.plain import JsonPath, at
from k8s_extender.pods import VOLCANO
from k8s_extender.workload import template_job
from predictor.estimate.fitting import Fitted

from .control_plane import NAMESPACE, ControlPlane, wait_until
from .kubelet import running_status
from .objects import FP32, MIXED, created, job, namespace, p100, pods, registered, wait_known
from .past import stamp

ASKS = {"fill-deadline": "true"}
# A type has room for half of them.
STATED = {
    "mixed": MIXED,
    "long": MIXED | {"epochs": "300"},
    "single": FP32,
    "large": MIXED | {"batch-size": "128"},
}


@pytest.fixture
def jobs(cluster: ControlPlane) -> Iterator[client.BatchV1Api]:
    """Jobs as their own controller runs them."""
    controllers = cluster.run(
        "kube-controller-manager",
        "--kubeconfig",
        str(cluster.kubeconfig),
        "--controllers=job-controller",
        "--leader-elect=false",
        "--secure-port=0",
    )
    batch = client.BatchV1Api(cluster.api)
    yield batch
    batch.delete_collection_namespaced_job(NAMESPACE, propagation_policy="Background")
    wait_until(lambda: not batch.list_namespaced_job(NAMESPACE).items)
    controllers.stop()
    core = client.CoreV1Api(cluster.api)
    for pod in core.list_namespaced_pod(NAMESPACE).items:
        freed = {"metadata": {"finalizers": None}}
        core.patch_namespaced_pod(pod.metadata.name, NAMESPACE, freed)


def test_the_deadline_is_within_two_of_the_95_percent_where_each_job_went(
    cluster: ControlPlane, jobs: client.BatchV1Api, fitted: Fitted
) -> None:
    nodes = [a100("a100-0", gpus=2), p100("p100-0")]
    kinds = {raw["metadata"]["name"]: gpu_node(raw, Config().hardware) for raw in nodes}
    wait_known(cluster, nodes)
    (webhooks,) = render().all("MutatingWebhookConfiguration")
    with registered(cluster, [cluster.reached(webhooks)]):
        made = {name: job(name, said | ASKS) for name, said in STATED.items()}
        for one in made.values():
            one["metadata"]["labels"] = {"precision-time.io/deadline": "annotated"}
        wait_until(lambda: created(cluster, NAMESPACE, made["mixed"]).deadline_s is not None)
        for one in made.values():
            jobs.create_namespaced_job(NAMESPACE, one)
    core = client.CoreV1Api(cluster.api)

    def placed() -> list[Any]:
        found = core.list_namespaced_pod(NAMESPACE).items
        return [cluster.api.sanitize_for_serialization(p) for p in found if p.spec.node_name]

    wait_until(lambda: len(placed()) == len(made))
    on = {}
    for pod in placed():
        name = pod["metadata"]["name"]
        status = running_status(pod, time.time())
        core.patch_namespaced_pod_status(name, NAMESPACE, {"status": status})
        on[pod["metadata"]["labels"]["job-name"]] = kinds[pod["spec"]["nodeName"]]

    def moved() -> set[str]:
        found = jobs.list_namespaced_job(NAMESPACE).items
        return {j.metadata.name for j in found if BASIS in j.metadata.annotations}

    # On the slowest type they have the time they need already, but for what they waited.
    fast = {name for name, node in on.items() if node.name == "a100-0"}
    assert 0 < len(fast) < len(made)
    wait_until(lambda: fast <= moved())
    known = Decider(fitted.predictor, Config(), lambda: kinds)
    shares = []
    for found in jobs.list_namespaced_job(NAMESPACE).items:
        name = found.metadata.name
        read, kind = template_job("Job", made[name], known.config), on[name].type
        assert read is not None
        assert kind is not None
        (estimate,) = known.estimates(read, [kind])
        p95_s = estimate.total_s(0.95)
        assert p95_s is not None
        shares.append(found.spec.active_deadline_seconds / p95_s)
    assert min(shares) >= 1
    assert statistics.median(shares) <= 2


LIMIT = "activeDeadlineSeconds"
# Plural, and where the deadline stands, which is of what type.
KINDS: dict[str, tuple[str, JsonPath, dict[str, str]]] = {
    "PyTorchJob": ("pytorchjobs", ("runPolicy", LIMIT), {"type": "integer", "format": "int64"}),
    "MPIJob": ("mpijobs", ("runPolicy", LIMIT), {"type": "integer", "format": "int64"}),
    "RayJob": ("rayjobs", (LIMIT,), {"type": "integer", "format": "int32"}),
    "TrainJob": ("trainjobs", (LIMIT,), {"type": "integer", "format": "int64"}),
    "JobSet": ("jobsets", ("replicatedJobs", 1, "template", "spec", LIMIT), {}),
    VOLCANO: ("jobs", ("runningEstimate",), {"type": "string"}),
}


def whole(kind: str) -> dict[str, Any]:
    """A job of a kind that states everything, as users write it."""
    made = operated(kind) if kind in ("MPIJob", "TrainJob", VOLCANO) else complete(kind.lower())
    made["metadata"] = {"name": "x", "annotations": made["metadata"]["annotations"]}
    return made | {"kind": kind.partition(" ")[0]}


def definition(kind: str) -> dict[str, Any]:
    """A kind whose deadline is what its project has there; the rest of it is taken as it comes."""
    plural, place, schema = KINDS[kind]
    group, _, number = whole(kind)["apiVersion"].partition("/")
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    held: dict[str, Any] = schema or free
    for name in reversed(("spec", *place) if schema else ("spec",)):
        held = free | {"properties": {name: held}}
    version = {"name": number, "served": True, "storage": True, "schema": {"openAPIV3Schema": held}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind.partition(" ")[0], "plural": plural, "singular": plural[:-1]},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


@pytest.fixture
def kinds(cluster: ControlPlane) -> Iterator[None]:
    """All kinds are served, and the webhook looks at them; there is an A100 and a P100.

    The kinds stay: the API server can forget to remove one whose objects nobody has listed (its
    finalizer fails, and takes the conflict with its own report for a change that wakes it again).
    """
    wait_known(cluster, [a100("a100-0", gpus=8), p100("p100-0")])
    named = {plural: True for plural, *_ in KINDS.values() if plural != "jobs"}
    values = {"mode": "place", "admission": {"webhook": {"kinds": named | {"vcjobs": True}}}}
    (webhooks,) = render(values).all("MutatingWebhookConfiguration")
    namespace(cluster, "fill")
    cluster.apply(map(definition, KINDS))
    with registered(cluster, [cluster.reached(webhooks)]):
        for kind in KINDS:
            wait_until(lambda k=kind: definition(k)["spec"]["group"] in served(cluster))
        yield


def served(cluster: ControlPlane) -> str:
    return cluster.kubectl("api-resources")[0]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gets_the_deadline_in_its_own_field(
    cluster: ControlPlane, kinds: None, kind: str
) -> None:
    def found() -> Any:
        return at(created(cluster, "fill", whole(kind)).object, "spec", *KINDS[kind][1])

    wait_until(lambda: found() is not None)
    told = created(cluster, "fill", whole(kind)).annotations
    if kind == VOLCANO:
        assert found() == told["precision-time.io/expected-run-time"]
    else:
        assert found() == int(told["precision-time.io/filled-deadline-seconds"]) > 600


def test_kueue_and_kai_are_told_in_their_own_words(cluster: ControlPlane, kinds: None) -> None:
    one = job("x", MIXED)
    one["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q", "kai.scheduler/queue": "q"}
    wait_until(lambda: created(cluster, "fill", one).deadline_s is not None)
    found = created(cluster, "fill", one)
    assert found.labels["kueue.x-k8s.io/max-exec-time-seconds"] == str(found.deadline_s)
    expected = found.annotations["precision-time.io/expected-run-time"]
    assert found.annotations["kai.scheduler/expected-runtime"] == expected


@pytest.mark.parametrize("kind", ["PyTorchJob", "RayJob"])
def test_the_deadline_of_an_operators_job_follows_its_pods(
    cluster: ControlPlane, kinds: None, kind: str
) -> None:
    plural, place, _ = KINDS[kind]
    made, began_s = whole(kind), time.time() - 300
    group, version = made["apiVersion"].split("/")
    custom, core = client.CustomObjectsApi(cluster.api), client.CoreV1Api(cluster.api)
    here = (group, version, "fill", plural)

    def filled() -> bool:
        return bool(at(created(cluster, "fill", made).object, "spec", *place))

    wait_until(filled)
    made["status"] = {"startTime": stamp(began_s)}
    if kind == "RayJob":
        made["status"] |= {"rayClusterName": "x-1"}
    stored: Any = custom.create_namespaced_custom_object(*here, made)
    before_s = at(stored, "spec", *place)
    owner = {"apiVersion": made["apiVersion"], "kind": kind, "name": "x", "controller": True}
    owner |= {"uid": stored["metadata"]["uid"]}
    if kind == "RayJob":
        owner |= {"kind": "RayCluster", "name": "x-1"}
    try:
        for one in pods("worker", 4, {}):
            one["metadata"]["ownerReferences"] = [owner]
            one["spec"]["nodeName"] = "a100-0"
            core.create_namespaced_pod("fill", one)
            status = running_status(one, time.time())
            core.patch_namespaced_pod_status(one["metadata"]["name"], "fill", {"status": status})

        def now() -> Any:
            return custom.get_namespaced_custom_object(*here, "x")

        wait_until(lambda: BASIS in now()["metadata"]["annotations"])
        assert at(now(), "spec", *place) < before_s
    finally:
        custom.delete_namespaced_custom_object(*here, "x")
        core.delete_collection_namespaced_pod("fill", grace_period_seconds=0)
