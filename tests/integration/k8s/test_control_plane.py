"""What kube-scheduler and kube-apiserver make of the extender.

Not run against a live control plane yet: written after what was observed on one (v1.36.2), and
skipped where KUBE_ASSETS_DIR does not name the programs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from gfd_nodes import a100, node
from kubernetes import client

from .control_plane import NAMESPACE, ControlPlane, wait_until

MIXED = {"model": "resnet50", "precision": "amp", "batch-size": "64", "epochs": "90"}
FP32 = {"model": "resnet50", "precision": "fp32", "batch-size": "64", "epochs": "90"}
BF16 = {"model": "bert-large", "precision": "bf16-mixed", "batch-size": "4", "steps": "1000"}
NEW_NODES_S = 2.0  # the node watch is a stream; this is generous
BF16_REFUSED = "GPU has no BF16 tensor cores"


def p100(name: str) -> dict[str, Any]:
    return node(name, "Tesla-P100-PCIE-16GB", memory=16384, gpus=8, capability=(6, 0))


def ready(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Nodes that pods may run on: a kubelet would say so, and how many pods it takes."""
    for each in nodes:
        del each["metadata"]["uid"], each["metadata"]["managedFields"]
        offered = {**each["status"]["capacity"], "memory": "512Gi", "pods": "250"}
        each["status"] = {"capacity": offered, "allocatable": offered,
                          "conditions": [{"type": "Ready", "status": "True"}]}  # fmt: skip
    return nodes


def template(said: Mapping[str, str], gpus: int = 1) -> dict[str, Any]:
    asked = {"nvidia.com/gpu": str(gpus)}
    container = {"name": "train", "image": "example.invalid/train:1",
                 "resources": {"limits": asked, "requests": asked}}  # fmt: skip
    annotations = {f"precision-time.io/{key}": value for key, value in said.items()}
    return {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }


def pods(prefix: str, count: int, said: Mapping[str, str]) -> list[dict[str, Any]]:
    made = [template(said) for _ in range(count)]
    for i, pod in enumerate(made):
        pod["metadata"]["name"] = f"{prefix}-{i}"
    return made


def job(name: str, said: Mapping[str, str], **spec: Any) -> Any:
    told = {"fill-deadline": "true", **said}
    annotations = {f"precision-time.io/{key}": value for key, value in told.items()}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"template": template(said), **spec},
    }


def wait_known(cluster: ControlPlane, nodes: list[dict[str, Any]]) -> None:
    """Until the extender has seen the nodes: a bf16 pod is refused only by those it knows."""
    cluster.add_nodes(ready(nodes))
    wait_until(lambda: len(client.CoreV1Api(cluster.api).list_node().items) == len(nodes))
    probe = template(BF16)
    probe["metadata"]["name"] = "probe"
    probe["spec"]["nodeSelector"] = {"kubernetes.io/hostname": nodes[-1]["metadata"]["name"]}
    core = client.CoreV1Api(cluster.api)

    def decided() -> bool:
        core.create_namespaced_pod(NAMESPACE, probe)
        try:
            wait_until(lambda: why_waiting(cluster, "probe") is not None, NEW_NODES_S)
        except AssertionError:
            return False
        finally:
            core.delete_namespaced_pod("probe", NAMESPACE, grace_period_seconds=0)
            wait_until(lambda: "probe" not in cluster.nodes_of("probe"))
        return True

    wait_until(decided)


def why_waiting(cluster: ControlPlane, name: str) -> str | None:
    """What the scheduler says of a pod that it cannot place."""
    pod = client.CoreV1Api(cluster.api).read_namespaced_pod(name, NAMESPACE)
    said = {c.type: c for c in pod.status.conditions or ()}.get("PodScheduled")
    return said.message if said is not None and said.reason == "Unschedulable" else None


def kinds(placed: Mapping[str, str]) -> set[str]:
    return {name.partition("-")[0] for name in placed.values()}


def mixed_cluster() -> list[dict[str, Any]]:
    """The last one has no tensor cores, which shows that the extender knows it."""
    return [a100("a100-0"), a100("a100-1"), p100("p100-0"), p100("p100-1")]


def test_mixed_pods_get_tensor_cores_and_fp32_pods_leave_them(cluster: ControlPlane) -> None:
    wait_known(cluster, mixed_cluster())
    cluster.add_pods([*pods("mixed", 8, MIXED), *pods("single", 8, FP32)])
    assert kinds(cluster.wait_placed("mixed", 8)) == {"a100"}
    assert kinds(cluster.wait_placed("single", 8)) == {"p100"}


def test_a_precision_no_gpu_can_run_is_unschedulable_and_says_why(cluster: ControlPlane) -> None:
    wait_known(cluster, [p100("p100-0"), p100("p100-1")])
    cluster.add_pods(pods("bf16", 1, BF16))
    wait_until(lambda: f"2 {BF16_REFUSED}" in (why_waiting(cluster, "bf16-0") or ""))
    core = client.CoreV1Api(cluster.api)

    def told() -> set[str]:
        events = core.list_namespaced_event(NAMESPACE).items
        return {e.reason for e in events
                if e.involved_object.name == "bf16-0" and BF16_REFUSED in e.message}  # fmt: skip

    wait_until(lambda: {"FailedScheduling", "PrecisionTimeNodesRefused"} <= told())
    assert "preemption: [" not in (why_waiting(cluster, "bf16-0") or "")


def test_a_deadline_is_filled_on_a_job_but_not_over_a_users_own(cluster: ControlPlane) -> None:
    wait_known(cluster, mixed_cluster())
    cluster.register_webhook()
    batch = client.BatchV1Api(cluster.api)

    def filled() -> int | None:
        made = batch.create_namespaced_job(NAMESPACE, job("filled", MIXED))
        batch.delete_namespaced_job("filled", NAMESPACE, propagation_policy="Background")
        found: int | None = made.spec.active_deadline_seconds
        return found

    wait_until(lambda: filled() is not None)  # the API server learns of webhooks in a moment
    own = batch.create_namespaced_job(NAMESPACE, job("own", MIXED, activeDeadlineSeconds=4242))
    assert own.spec.active_deadline_seconds == 4242
    assert "precision-time.io/predicted-duration" in own.metadata.annotations
    silent = batch.create_namespaced_job(NAMESPACE, job("silent", {"fill-deadline": "false"}))
    assert silent.spec.active_deadline_seconds is None


def test_no_pod_is_lost_when_the_extender_is_killed_under_load(cluster: ControlPlane) -> None:
    wait_known(cluster, [*(a100(f"a100-{i}") for i in range(20)), p100("p100-0")])
    cluster.add_pods(pods("before", 40, MIXED))
    cluster.kill_extender()
    cluster.add_pods(pods("without", 40, MIXED))
    cluster.wait_placed("without", 40)
    cluster.start_extender()
    cluster.add_pods(pods("after", 40, MIXED))
    assert len(cluster.wait_placed("before", 40)) == 40
    assert kinds(cluster.wait_placed("after", 40)) == {"a100"}


def test_a_new_certificate_is_used_without_a_pod_going_unranked(cluster: ControlPlane) -> None:
    wait_known(cluster, mixed_cluster())
    cluster.use(cluster.new)
    try:
        expected = cluster.new.certificate.read_text()
        wait_until(lambda: cluster.shown_certificate().split() == expected.split())
        cluster.add_pods(pods("rolled", 8, FP32))
        assert kinds(cluster.wait_placed("rolled", 8)) == {"p100"}
    finally:
        cluster.use(cluster.old)


def test_a_thousand_nodes_are_ranked(cluster: ControlPlane) -> None:
    fast = [a100(f"a100-{i}") for i in range(100)]
    wait_known(cluster, [*fast, *(p100(f"p100-{i}") for i in range(900))])
    cluster.add_pods(pods("mixed", 100, MIXED))
    placed = cluster.wait_placed("mixed", 100)
    assert kinds(placed) == {"a100"}
    assert max(Counter(placed.values()).values()) <= 8
