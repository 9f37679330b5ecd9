"""Whatever users write and whatever becomes of us, the API server takes what it would take.

Skipped where KUBE_ASSETS_DIR does not name the programs.
"""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from chart_render import render
from gfd_nodes import a100
from k8s_certificates import self_signed
from kubernetes import client

from .control_plane import PLACED_S, ControlPlane, wait_until
from .objects import MIXED, namespace, p100, registered, template, wait_known

OURS = "precision-time.io/"
HUGE = str(10**18)
NONSENSE = (
    "NaN",
    "-1",
    "0",
    HUGE,
    "1e308",
    "9" * 5000,
    "<script>",
    "\x07\u202e\U0001f600",
    "",
    "x" * 60_000,
)
KEYS = (*MIXED, "steps", "gpus", "deadline", "gpu-memory", "policy", "pods", "predicted-p95")
KEYS = (
    *KEYS,
    "filled-deadline-seconds",
    "fill-deadline",
    "placement",
    "deadline-hard",
    "no-such-key",
)
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
HALF = {"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}


def told(annotations: dict[str, str], **spec: Any) -> dict[str, Any]:
    """A pod that states a whole job, and more."""
    made = {"apiVersion": "v1", "kind": "Pod", **template(MIXED)}
    made["metadata"]["annotations"] |= annotations
    made["spec"] |= spec
    return made


def running(**container: Any) -> dict[str, Any]:
    made = told({})
    made["spec"]["containers"][0] |= container
    return made


def asked(quantity: Any) -> dict[str, Any]:
    return running(resources={"limits": {"nvidia.com/gpu": quantity}})


def train(annotations: dict[str, str], **spec: Any) -> dict[str, Any]:
    """A Job of that pod."""
    pod = told(annotations)
    body = {"template": {"metadata": pod["metadata"], "spec": pod["spec"]}, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": body}


# What an API server may be sent; most of it, it takes.
SENT: list[dict[str, Any]] = [
    *(told({f"{OURS}{key}": word}) for key in KEYS for word in NONSENSE),
    told({f"{OURS}{'k' * 55}-{i}": "x" * 100 for i in range(900)}),
    told({f"{OURS}model": "x" * (2**18 - 300)}),
    told({"note": "x" * (2**18 - 400)}),
    told({f"{OURS}model": None}),
    told({f"{OURS}steps": 5}),
    told({f"{OURS}steps": [1]}),
    *(
        asked(q)
        for q in (
            "1k",
            "1e0",
            "1e3",
            "1.0",
            "1500m",
            "0",
            "-1",
            HUGE,
            1,
            1.5,
            True,
            None,
            "NaN",
            {},
        )
    ),
    running(command=["python", *(f"--a{i}=$(A{i})" for i in range(20_000))]),
    running(command=["sh", "-c", "python 't.py' \"$(\n`#<b>&" * 2000]),
    running(
        command=[
            "python",
            "run_clm.py",
            "--max_steps",
            HUGE,
            "--per_device_train_batch_size",
            "NaN",
        ]
    ),
    running(command="python"),
    running(command=[1, None]),
    running(env=[{"name": f"A{i}", "value": f"$(A{i - 1})$(A{i - 1})"} for i in range(600)]),
    running(env=[{"name": "PRECISION_TIME", "value": "model=\x07 " + "steps=1 " * 9000}]),
    running(env="no list"),
    running(resources=None),
    running(resources=[]),
    running(image=""),
    told({}, containers=[]),
    told({}, containers=None),
    told({}, containers={}),
    told({}, containers=[None]),
    told({}, initContainers=[{}]),
    told({}, affinity=None),
    told({}, affinity={"nodeAffinity": None}),
    told({}, affinity={"nodeAffinity": {}}),
    told({}, affinity={"nodeAffinity": {PREFERRED: []}}),
    told({}, affinity={"nodeAffinity": {PREFERRED: [HALF] * 500}}),
    told({}, affinity={"nodeAffinity": []}),
    told({}, affinity="none"),
    told({}, nodeSelector={"nvidia.com/gpu.product": "x/y~z"}),
    told({}, resourceClaims=[{"name": "gone", "resourceClaimTemplateName": "no-such"}]),
    told({}, activeDeadlineSeconds=0),
    told({}, activeDeadlineSeconds=2**31 - 1),
    told({}, activeDeadlineSeconds=1.5),
    told({}, schedulingGates=[{"name": "example.com/wait"}]),
    told({}, nodeName="no-such-node"),
    {"apiVersion": "v1", "kind": "Pod", "spec": None},
    {"apiVersion": "v1", "kind": "Pod"},
    *(
        train({f"{OURS}{key}": word})
        for key in ("steps", "epochs", "deadline", "pods")
        for word in NONSENSE
    ),
    train({}, parallelism=0),
    train({}, parallelism=2**31 - 1, completions=2**31 - 1),
    train({}, completions=10**9, parallelism=1),
    train({}, completions=4, parallelism=4, completionMode="Indexed"),
    train({}, activeDeadlineSeconds=0),
    train({}, activeDeadlineSeconds=2**40),
    train({}, suspend=True, ttlSecondsAfterFinished=0),
    train({}, template=None),
]


def outcome(cluster: ControlPlane, obj: dict[str, Any], *, dry: bool = True) -> tuple[int, Any]:
    """The status of a creation, and the object as it is stored."""
    plural = "jobs" if obj["kind"] == "Job" else "pods"
    group = "/apis/batch/v1" if plural == "jobs" else "/api/v1"
    answer = cluster.api.rest_client.pool_manager.request(
        "POST",
        f"{cluster.api.configuration.host}{group}/namespaces/fill/{plural}{'?dryRun=All' * dry}",
        body=json.dumps({**obj, "metadata": {**(obj.get("metadata") or {}), "generateName": "h-"}}),
        headers={
            "Content-Type": "application/json",
            "Authorization": cluster.api.configuration.api_key["authorization"],
        },
    )
    return answer.status, answer.json()


@pytest.fixture
def webhooks(cluster: ControlPlane) -> dict[str, Any]:
    values = {"config": {"hardware": {"claims": True}}}
    (found,) = render(values).all("MutatingWebhookConfiguration")
    return cluster.reached(found)


def test_nothing_that_users_write_is_refused_for_us_or_stays_pending(
    cluster: ControlPlane, webhooks: dict[str, Any]
) -> None:
    wait_known(cluster, [*(a100(f"a100-{i}") for i in range(40)), p100("p100-0")])
    namespace(cluster, "fill")
    without = [outcome(cluster, one)[0] for one in SENT]
    assert without.count(201) > 0.8 * len(SENT)
    core = client.CoreV1Api(cluster.api)
    with registered(cluster, [webhooks]):
        wait_until(
            lambda: f"{OURS}placement" in (outcome(cluster, told({}))[1]["metadata"]["annotations"])
        )
        found = [outcome(cluster, one, dry=one["kind"] == "Job") for one in SENT]
    assert [status for status, _ in found] == without
    waiting = core.list_namespaced_pod("fill").items
    assert len(waiting) == sum(s == 201 for s, o in found if o["kind"] == "Pod")

    def unplaced() -> list[Any]:
        pods = core.list_namespaced_pod("fill").items
        return [p for p in pods if not p.spec.node_name and _may_run(p)]

    try:
        wait_until(lambda: not unplaced(), 3 * PLACED_S)
        assert cluster.extender.running
        assert '"outcome": "failed"' not in cluster.extender.output.read_text()
    finally:
        core.delete_collection_namespaced_pod("fill", grace_period_seconds=0)


def _may_run(pod: Any) -> bool:
    """Whether anything but us could keep it off the nodes."""
    asked = [c.resources.limits or {} for c in pod.spec.containers if c.resources]
    gpus = [str(limits.get("nvidia.com/gpu", "0")) for limits in asked]
    kept_off = pod.spec.node_selector or pod.spec.resource_claims or pod.spec.scheduling_gates
    return not kept_off and all(g in ("0", "1") for g in gpus)


@contextmanager
def deaf() -> Iterator[str]:
    """An address that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"


def written(cluster: ControlPlane, obj: dict[str, Any]) -> tuple[Any, ...]:
    """All that a webhook of ours could have changed of a new object."""
    status, found = outcome(cluster, obj)
    spec, told = found["spec"], found["metadata"].get("annotations")
    inner = spec.get("template", {}).get("metadata", {}).get("annotations")
    return status, told, inner, spec.get("affinity"), spec.get("activeDeadlineSeconds")


@pytest.mark.parametrize("fault", ["dead", "slow", "certificate"])
def test_without_the_webhook_objects_pass_as_they_came(
    cluster: ControlPlane, webhooks: dict[str, Any], fault: str
) -> None:
    wait_known(cluster, [a100("a100-0"), p100("p100-0")])
    namespace(cluster, "fill")
    pod, job = told({}), train({})
    before = [written(cluster, one) for one in (pod, job)]
    assert [status for status, *_ in before] == [201, 201]
    with deaf() as address, registered(cluster, [webhooks]):
        wait_until(
            lambda: written(cluster, pod) != before[0] and written(cluster, job) != before[1]
        )
        foreign = self_signed(cluster.root / "foreign", "foreign").certificate.read_bytes()
        for one in webhooks["webhooks"]:
            one["timeoutSeconds"], reached = 1, one["clientConfig"]
            if fault == "slow":
                reached["url"] = address + reached["url"][reached["url"].index("/v1/") :]
            elif fault == "certificate":
                reached["caBundle"] = base64.b64encode(foreign).decode()
        if fault == "dead":
            cluster.kill_extender()
        try:
            cluster.apply([webhooks])
            wait_until(lambda: [written(cluster, one) for one in (pod, job)] == before)
        finally:
            if fault == "dead":
                cluster.start_extender()
