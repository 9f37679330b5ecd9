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
from test_admission_kinds import complete

from k8s_extender.bound import BASIS
from k8s_extender.config import Config
from k8s_extender.decide import Decider
from k8s_extender.nodes import gpu_node
from k8s_extender.workload import template_job
from predictor.estimate.fitting import Fitted

from .control_plane import NAMESPACE, ControlPlane, wait_until
from .kubelet import running_status
from .objects import FP32, MIXED, created, job, namespace, p100, registered, wait_known

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

    def pods() -> list[Any]:
        found = core.list_namespaced_pod(NAMESPACE).items
        return [cluster.api.sanitize_for_serialization(p) for p in found if p.spec.node_name]

    wait_until(lambda: len(pods()) == len(made))
    on = {}
    for pod in pods():
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


# Kind, plural and group, and where its deadline stands.
KINDS = (
    ("PyTorchJob", "pytorchjobs", "kubeflow.org", ("runPolicy", "activeDeadlineSeconds")),
    ("RayJob", "rayjobs", "ray.io", ("activeDeadlineSeconds",)),
)


def definition(kind: str, plural: str, group: str, place: tuple[str, ...]) -> dict[str, Any]:
    """A kind whose deadline is what its project has there; the rest of it is taken as it comes."""
    schema: dict[str, Any] = {"type": "integer", "format": "int64", "minimum": 0}
    for name in reversed(("spec", *place)):
        schema = {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {name: schema},
        }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def test_a_pytorch_job_and_a_ray_job_get_the_deadline_in_their_own_field(
    cluster: ControlPlane,
) -> None:
    wait_known(cluster, [a100("a100-0", gpus=8)])
    kinds = {plural: True for _, plural, _, _ in KINDS}
    values = {"mode": "place", "admission": {"webhook": {"kinds": kinds}}}
    (webhooks,) = render(values).all("MutatingWebhookConfiguration")
    definitions = [definition(*kind) for kind in KINDS]
    namespace(cluster, "fill")
    with registered(cluster, [*definitions, cluster.reached(webhooks)]):
        for kind, plural, _, place in KINDS:
            wait_until(lambda p=plural: p in cluster.kubectl("api-resources")[0])
            made = complete(kind.lower())
            made["metadata"] = {"name": "x", "annotations": made["metadata"]["annotations"]}

            def filled(one: dict[str, Any] = made, at: tuple[str, ...] = place) -> int:
                found: Any = created(cluster, "fill", one).object["spec"]
                for name in at:
                    found = (found or {}).get(name)
                return found or 0

            wait_until(lambda fill=filled: fill() > 600)
