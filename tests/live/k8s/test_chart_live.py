"""What a real control plane makes of the chart: its objects, its policy, its second scheduler.

Skipped where KUBE_ASSETS_DIR does not name the programs.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from chart_render import NAMESPACE as RELEASE_NAMESPACE
from chart_render import Rendered, render
from click.testing import CliRunner
from k8s_certificates import Pair
from kubernetes import client

import k8s_extender.admission
from predictor.cli.main import main

from ..slurm.processes import free_ports
from .control_plane import NAMESPACE, ControlPlane, RefusedError, wait_until
from .objects import FP32, created, job, namespace, p100, pods, ready, registered

CUSTOM = {"ServiceMonitor", "Issuer", "Certificate"}
STATED = {"predicted-p95": "3h41m", "predicted-duration": "2h"}
DEADLINE_S = 14160  # 1.02 x 13260 s + 600 s, whole minutes
SECOND: dict[str, Any] = {"scheduler": "second-scheduler", "networkPolicy": {"enabled": True}}
KUBE = {"kubeVersion": "1.36.2"}
VARIANTS: list[dict[str, Any]] = [
    KUBE,
    KUBE | SECOND | {"autoscaling": {"enabled": True}, "priorityClass": {"create": True}},
    KUBE | {"admission": {"mode": "policy"}, "metrics": {"dashboard": {"enabled": True}}},
]


@pytest.mark.parametrize("given", VARIANTS, ids=["extender", "second-scheduler", "policy"])
def test_the_api_server_takes_every_object(cluster: ControlPlane, given: dict[str, Any]) -> None:
    objects = [o for o in render(given).objects if o["kind"] not in CUSTOM]
    out, said = cluster.apply(objects, "--dry-run=server")
    assert len(out.splitlines()) == len(objects)
    assert "rning" not in said.replace("missing the kubectl.kubernetes.io/last-applied", "")


def test_a_field_that_is_misspelled_would_be_refused(cluster: ControlPlane) -> None:
    service = {**render().one("Service"), "spek": {}}
    with pytest.raises(RefusedError, match="spek"):
        cluster.apply([service], "--dry-run=server")


def test_our_own_check_is_content_with_the_account(cluster: ControlPlane) -> None:
    cluster.add_nodes(ready([p100("p100-0")]))
    given = ("--kubeconfig", cluster.extender_kubeconfig)
    result = CliRunner().invoke(main, ["k8s", "check", *map(str, given)])
    assert result.exit_code == 0, result.output
    assert "1 nodes are listed, 1 of them with GPUs that we know" in result.output


def policy_of_the_package() -> list[dict[str, Any]]:
    source = Path(k8s_extender.admission.__file__).with_name("policy.yaml")
    return list(yaml.safe_load_all(source.read_text("utf-8")))


def policy_of_the_chart() -> list[dict[str, Any]]:
    rendered = render(VARIANTS[2])
    return [o for o in rendered.objects if o["kind"].startswith("MutatingAdmissionPolicy")]


@pytest.mark.parametrize("policy", [policy_of_the_package, policy_of_the_chart])
def test_the_policy_fills_what_the_webhook_would(cluster: ControlPlane, policy: Any) -> None:
    with registered(cluster, policy()):
        for label in ("fill", "annotated"):
            namespace(cluster, label)

        def filled(said: dict[str, str], place: str = "fill", **spec: Any) -> int | None:
            return created(cluster, place, job("a", said, **spec)).deadline_s

        wait_until(lambda: filled(STATED) is not None)
        found = created(cluster, "fill", job("a", STATED))
        assert found.deadline_s == DEADLINE_S
        assert found.annotations["precision-time.io/filled-deadline-seconds"] == str(DEADLINE_S)
        assert filled({"predicted-duration": "3h"}) == 17160  # 1.5 times the median
        assert filled(STATED, activeDeadlineSeconds=4242) == 4242
        assert filled(STATED, completions=20, parallelism=4) == 70680  # five runs of 14125.2 s
        assert filled(STATED | {"fill-deadline": "False"}) is None
        assert filled({"predicted-p95": "soon"}) is None
        assert filled(STATED, "annotated") is None
        assert filled(STATED | {"fill-deadline": "true"}, "annotated") == DEADLINE_S
        assert filled(STATED | {"fill-deadline": "true"}, NAMESPACE) is None


def test_the_policy_tells_kueue_and_the_slurm_bridge(cluster: ControlPlane) -> None:
    with registered(cluster, policy_of_the_chart()):
        namespace(cluster, "fill")
        queued = job("a", STATED)
        queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
        queued["spec"]["template"]["spec"]["schedulerName"] = "slurm-bridge-scheduler"
        wait_until(lambda: created(cluster, "fill", queued).deadline_s is not None)
        found = created(cluster, "fill", queued)
        assert found.labels["kueue.x-k8s.io/max-exec-time-seconds"] == str(DEADLINE_S)
        assert found.labels["kueue.x-k8s.io/queue-name"] == "team"
        assert found.annotations["slurmjob.slinky.slurm.net/timelimit"] == "236"
        queued["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = "600"
        assert created(cluster, "fill", queued).deadline_s is None


def account_and_rights(rendered: Rendered) -> list[dict[str, Any]]:
    """Of the second scheduler alone: the extender of all tests keeps the rights that it has."""
    kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    named = (found for kind in kinds for found in rendered.all(kind))
    return [found for found in named if "-scheduler" in found["metadata"]["name"]]


def answers(port: int, path: str) -> bool:
    """Whether a probe of the kubelet, which verifies nothing, would be content."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urlopen(f"https://127.0.0.1:{port}{path}", timeout=5, context=context) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_the_second_scheduler_places_its_pods_with_the_rights_and_the_ca_of_the_chart(
    cluster: ControlPlane,
) -> None:
    rendered = render(KUBE | SECOND, namespace=RELEASE_NAMESPACE)
    cluster.apply(account_and_rights(rendered))
    served = Pair(cluster.root / "chart.crt", cluster.root / "chart.key")
    served.certificate.write_bytes(rendered.secret()["tls.crt"])
    served.key.write_bytes(rendered.secret()["tls.key"])
    expected = served.certificate.read_text().split()
    cluster.use(served)
    wait_until(lambda: cluster.shown_certificate().split() == expected)
    account = rendered.pod("-scheduler")["spec"]["serviceAccountName"]
    config = rendered.scheduler_config()
    # No pod, so no account mounted, and no names of Services: everything else is the chart's.
    theirs = cluster.kubeconfig_of(account, RELEASE_NAMESPACE)
    config["clientConnection"] = {"kubeconfig": str(theirs)}
    (extender,) = config["extenders"]
    extender |= {"urlPrefix": f"https://127.0.0.1:{cluster.extender_port}/v1", "ignorable": False}
    file = cluster.root / "second.yaml"
    file.write_text(yaml.safe_dump(config))
    (port,) = free_ports(1)
    daemon = cluster.run(
        "kube-scheduler",
        "--config",
        str(file),
        "--bind-address",
        "127.0.0.1",
        "--secure-port",
        str(port),
        "--authentication-kubeconfig",
        str(theirs),
        "--authorization-kubeconfig",
        str(theirs),
    )
    try:
        probe = rendered.pod("-scheduler")["spec"]["containers"][0]["livenessProbe"]["httpGet"]
        daemon.wait_until(lambda: answers(port, probe["path"]))
        cluster.add_nodes(ready([p100("p100-0")]))
        named = pods("second", 4, FP32)
        for pod in named:
            pod["spec"]["schedulerName"] = config["profiles"][0]["schedulerName"]
        cluster.add_pods(named)
        assert set(cluster.wait_placed("second", 4).values()) == {"p100-0"}
        lease = client.CoordinationV1Api(cluster.api).read_namespaced_lease(
            config["leaderElection"]["resourceName"], RELEASE_NAMESPACE
        )
        assert lease.spec.holder_identity
    finally:
        daemon.stop()
        cluster.use(cluster.old)
