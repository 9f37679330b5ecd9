"""What kube-scheduler and kube-apiserver make of the extender, which has the rights of the chart.

Skipped where KUBE_ASSETS_DIR does not name the programs. They pass on v1.36.2 with etcd 3.6.8.
"""

from __future__ import annotations

import signal
import ssl
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.request import urlopen

from chart_render import render
from gfd_nodes import a100
from kubernetes import client

from .control_plane import NAMESPACE, ControlPlane, wait_until
from .objects import (
    BF16,
    FP32,
    MIXED,
    created,
    job,
    namespace,
    p100,
    pods,
    registered,
    wait_known,
    why_waiting,
)

BF16_REFUSED = "GPU has no BF16 tensor cores"


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


def test_a_precision_that_free_gpus_cannot_run_waits_for_those_that_can_and_says_why(
    cluster: ControlPlane,
) -> None:
    wait_known(cluster, [a100("a100-0", gpus=1), p100("p100-0"), p100("p100-1")])
    cluster.add_pods(pods("first", 1, MIXED))
    assert kinds(cluster.wait_placed("first", 1)) == {"a100"}
    cluster.add_pods(pods("bf16", 1, BF16))
    wait_until(lambda: f"2 {BF16_REFUSED}" in (why_waiting(cluster, "bf16-0") or ""))
    core = client.CoreV1Api(cluster.api)

    def told() -> set[str]:
        events = core.list_namespaced_event(NAMESPACE).items
        return {
            e.reason
            for e in events
            if e.involved_object.name == "bf16-0" and BF16_REFUSED in e.message
        }

    wait_until(lambda: {"FailedScheduling", "PrecisionTimeNodesRefused"} <= told())
    assert "preemption: [" not in (why_waiting(cluster, "bf16-0") or "")


def test_what_no_gpu_of_the_cluster_can_run_runs_all_the_same(cluster: ControlPlane) -> None:
    wait_known(cluster, [p100("p100-0"), p100("p100-1")])
    cluster.add_pods(pods("bf16", 1, BF16))
    assert kinds(cluster.wait_placed("bf16", 1)) == {"p100"}


def test_a_deadline_is_filled_on_a_job_but_not_over_a_users_own(cluster: ControlPlane) -> None:
    wait_known(cluster, mixed_cluster())
    (webhooks,) = render().all("MutatingWebhookConfiguration")
    with registered(cluster, [cluster.reached(webhooks)]):
        for label in ("fill", "annotated"):
            namespace(cluster, label)
        # The API server learns of webhooks in a moment.
        wait_until(lambda: created(cluster, "fill", job("a", MIXED)).deadline_s is not None)
        filled = created(cluster, "fill", job("a", MIXED))
        assert "Warning: precision-time: resnet50, mixed_fp16_fp32, 1x " in filled.said
        assert "; deadline set to " in filled.said
        own = created(cluster, "fill", job("own", MIXED, activeDeadlineSeconds=4242))
        assert own.deadline_s == 4242
        assert "precision-time.io/predicted-duration" in own.annotations
        declined = created(cluster, "fill", job("b", MIXED | {"fill-deadline": "false"}))
        assert declined.deadline_s is None
        asking = job("c", MIXED | {"fill-deadline": "true"})
        assert created(cluster, "annotated", asking).deadline_s == filled.deadline_s
        assert created(cluster, "annotated", job("d", MIXED)).deadline_s is None
        assert created(cluster, NAMESPACE, job("e", MIXED)).annotations.keys() == {
            f"precision-time.io/{key}" for key in MIXED
        }
        indexed = {"completions": 4, "parallelism": 4, "completionMode": "Indexed"}
        inner = created(cluster, "fill", job("f", MIXED, **indexed)).inner
        assert inner["precision-time.io/pods"] == "4"


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


def test_a_hung_extender_fails_its_probe_and_keeps_no_pod_pending(cluster: ControlPlane) -> None:
    wait_known(cluster, mixed_cluster())
    (container,) = render().pod()["spec"]["containers"]
    probe = container["livenessProbe"]

    def alive() -> bool:
        """What the kubelet finds, which verifies no certificate."""
        context = ssl._create_unverified_context()
        url = f"https://127.0.0.1:{cluster.extender_port}{probe['httpGet']['path']}"
        try:
            with urlopen(url, timeout=probe["timeoutSeconds"], context=context) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    wait_until(alive)
    cpu = pods("cpu", 8, {})
    for one in cpu:
        one["spec"]["containers"][0]["resources"] = {}
    cluster.extender.signal(signal.SIGSTOP)
    try:
        assert not any(alive() for _ in range(probe["failureThreshold"]))
        cluster.add_pods([*pods("mixed", 2, MIXED), *cpu])
        cluster.wait_placed("cpu", len(cpu))
        cluster.wait_placed("mixed", 2)
    finally:
        cluster.extender.signal(signal.SIGCONT)
    wait_until(alive)


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
