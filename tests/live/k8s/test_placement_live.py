"""Where pods of today's trainings go on a real control plane: by webhook alone, by extender.

Skipped where KUBE_ASSETS_DIR does not name the programs.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml
from chart_render import render
from gfd_nodes import node
from gpu_claims import GPUS, gpu_slice, of, payload
from kubernetes import client
from test_docs_k8s import scheduler_profile
from training_commands import COMMANDS

from k8s_extender.admission import BEST, PLACED

from .control_plane import NAMESPACE, ControlPlane, wait_until
from .objects import BF16, created, ready, registered, template, wait_known, why_waiting

PLAIN, EXTENDED = "plain-scheduler", "default-scheduler"
# So many that each pod finds a whole node of any type.
EACH = 24
PRODUCTS = {
    "h100": ("NVIDIA-H100-80GB-HBM3", 81559, (9, 0)),
    "a100": ("NVIDIA-A100-SXM4-80GB", 81920, (8, 0)),
    "l40s": ("NVIDIA-L40S", 46068, (8, 9)),
    "v100": ("Tesla-V100-SXM2-16GB", 16384, (7, 0)),
}


def gpu_node(kind: str, name: str, gpus: int = 8) -> dict[str, Any]:
    product, memory, capability = PRODUCTS[kind]
    return node(name, product, memory=memory, gpus=gpus, capability=capability)


def pod(name: str, command: str, gpus: int, scheduler: str) -> dict[str, Any]:
    """A pod that says of its training what its command says."""
    made = {"apiVersion": "v1", "kind": "Pod", **template({}, gpus)}
    made["metadata"] = {"name": name, "annotations": {}}
    made["spec"]["schedulerName"] = scheduler
    made["spec"]["containers"][0]["command"] = shlex.split(command)
    return made


def kind_of(placed: str) -> str:
    return placed.partition("-")[0]


@contextmanager
def scheduling(cluster: ControlPlane, told: dict[str, Any]) -> Iterator[None]:
    """A kube-scheduler of its own, which knows no extender."""
    ours = {"kubeconfig": str(cluster.kubeconfig), "qps": 1000, "burst": 1000}
    alone = {"leaderElection": {"leaderElect": False}, "clientConnection": ours}
    file = cluster.root / f"{told['profiles'][0]['schedulerName']}.yaml"
    file.write_text(yaml.safe_dump(told | alone))
    daemon = cluster.run("kube-scheduler", "--config", str(file), "--secure-port", "0")
    yield
    daemon.stop()


@pytest.fixture(scope="module")
def plain(control_plane: ControlPlane) -> Iterator[str]:
    """The name of a kube-scheduler without any configuration."""
    bare = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    with scheduling(control_plane, bare | {"profiles": [{"schedulerName": PLAIN}]}):
        yield PLAIN


@pytest.fixture
def webhooks(cluster: ControlPlane) -> dict[str, Any]:
    values = {"config": {"hardware": {"claims": True}}}
    (found,) = render(values).all("MutatingWebhookConfiguration")
    return cluster.reached(found)


def preferred(cluster: ControlPlane, wanted: dict[str, Any]) -> set[str]:
    """The GPU products that the webhook puts first for a pod; none where it ranks nothing."""
    told = created(cluster, NAMESPACE, wanted).annotations.get(PLACED, "")
    weights = (one.rpartition("=") for one in told.split(",") if one)
    return {product for product, _, weight in weights if int(weight) == BEST}


@pytest.mark.parametrize("form", ["webhook", "extender"])
def test_forty_commands_of_today_run_at_once_and_on_the_type_that_is_best(
    cluster: ControlPlane, plain: str, webhooks: dict[str, Any], form: str
) -> None:
    wait_known(cluster, [gpu_node(kind, f"{kind}-{i}") for kind in PRODUCTS for i in range(EACH)])
    scheduler = plain if form == "webhook" else EXTENDED
    large_first = sorted(COMMANDS.items(), key=lambda pair: -pair[1])
    pods = [pod(f"{form}-{i}", c, n, scheduler) for i, (c, n) in enumerate(large_first)]
    with registered(cluster, [webhooks]):
        wait_until(lambda: any(preferred(cluster, one) for one in pods[:3]))
        best = {one["metadata"]["name"]: preferred(cluster, one) for one in pods}
        if form == "webhook":
            cluster.add_pods(pods)
    if form == "extender":
        cluster.add_pods(pods)
    placed = cluster.wait_placed(form, len(pods))
    products = {name: PRODUCTS[kind_of(on)][0] for name, on in placed.items()}
    assert sum(map(bool, best.values())) >= 36
    assert {name: p for name, p in products.items() if best[name] and p not in best[name]} == {}


def test_the_profile_in_the_documents_lets_our_order_outweigh_a_taint(
    cluster: ControlPlane, plain: str, webhooks: dict[str, Any]
) -> None:
    told = scheduler_profile()
    told["profiles"][0]["schedulerName"] = weighted = "weighted-scheduler"
    wait_known(cluster, [gpu_node(kind, f"{kind}-0") for kind in ("h100", "a100")])
    taint = {"key": "reserved", "value": "x", "effect": "PreferNoSchedule"}
    client.CoreV1Api(cluster.api).patch_node("h100-0", {"spec": {"taints": [taint]}})
    command = next(one for one in COMMANDS if "bert-base-uncased" in one)
    pods = {name: pod(name, command, 1, name) for name in (plain, weighted)}
    with scheduling(cluster, told), registered(cluster, [webhooks]):
        wait_until(lambda: preferred(cluster, pods[plain]) == {PRODUCTS["h100"][0]})
        cluster.add_pods(pods.values())
        placed = cluster.wait_placed("", 2)
    assert placed == {plain: "a100-0", weighted: "h100-0"}


@pytest.fixture
def claims(cluster: ControlPlane) -> Iterator[None]:
    """A node of each GPU, its four devices counted by slices alone; a controller makes claims."""
    controllers = cluster.run(
        "kube-controller-manager",
        "--kubeconfig",
        str(cluster.kubeconfig),
        "--controllers=resourceclaim-controller",
        "--leader-elect=false",
        "--secure-port=0",
    )
    nodes = ready([gpu_node(kind, kind, gpus=4) for kind in GPUS])
    for each in nodes:
        for part in ("capacity", "allocatable"):
            each["status"][part].pop("nvidia.com/gpu", None)
    cluster.add_nodes(nodes)
    made = [*map(gpu_slice, GPUS), payload("deviceclass")]
    for name, request in (
        (
            "any",
            {"exactly": {k: v for k, v in of("h100").items() if k not in ("name", "selectors")}},
        ),
        ("listed", {"firstAvailable": [of("v100"), of("a100"), of("h100")]}),
    ):
        found = payload("resourceclaimtemplate-firstavailable")
        found["metadata"] = {"name": name, "namespace": NAMESPACE}
        found["spec"]["spec"]["devices"]["requests"] = [{"name": "gpu", **request}]
        made.append(found)
    for each in made:
        each["metadata"] = {
            k: each["metadata"][k] for k in ("name", "namespace") if k in each["metadata"]
        }
    with registered(cluster, made):
        yield
        cluster.clear()
    controllers.stop()


def asking(wanted: dict[str, Any], how: str) -> dict[str, Any]:
    """The pod with a GPU asked for in one of the ways of dynamic resource allocation."""
    (container,) = wanted["spec"]["containers"]
    if how == "resource":
        return wanted
    container["resources"] = {"claims": [{"name": "gpu"}]}
    wanted["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": how}]
    return wanted


@pytest.mark.parametrize("how", ["any", "resource", "listed"])
def test_claims_follow_the_order_and_bf16_is_never_on_a_v100(
    cluster: ControlPlane, claims: None, plain: str, webhooks: dict[str, Any], how: str
) -> None:
    """As long as others are free; then only an extender, which claims never reach, keeps it off."""
    command = (
        "torchrun --nproc_per_node 1 run_mlm.py --model_name_or_path bert-large-uncased --bf16 "
        "--per_device_train_batch_size 8"
    )
    with registered(cluster, [webhooks]):
        for form, scheduler in (("webhook", plain), ("extender", EXTENDED)):
            pods = [asking(pod(f"{form}-{i}", command, 1, scheduler), how) for i in range(9)]
            if form == "extender":
                for one in pods:
                    one["metadata"]["annotations"] = {
                        f"precision-time.io/{key}": value for key, value in BF16.items()
                    }
            wait_until(lambda one=pods[0]: preferred(cluster, one) == {PRODUCTS["h100"][0]})
            went = []
            for i, one in enumerate(pods[: 9 if form == "webhook" else 8]):
                cluster.add_pods([one])
                went.append(cluster.wait_placed(form, i + 1)[f"{form}-{i}"])
            assert went == ["h100"] * 4 + ["a100"] * 4 + ["v100"] * (len(went) - 8)
            if form == "extender" and how == "resource":
                cluster.add_pods(pods[8:])
                wait_until(lambda: why_waiting(cluster, "extender-8") is not None)
            core = client.CoreV1Api(cluster.api)
            core.delete_collection_namespaced_pod(NAMESPACE, grace_period_seconds=0)
            wait_until(lambda: not cluster.nodes_of(""))
