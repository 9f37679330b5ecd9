"""What the chart tells kube-scheduler, and the second scheduler it runs."""

from __future__ import annotations

import base64
import re
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
from chart_render import NAMESPACE, Rendered, needs_helm, render

pytestmark = needs_helm

SECOND = {"scheduler": "second-scheduler"}
# kubescheduler.config.k8s.io/v1 is read strictly: any other key keeps kube-scheduler from starting.
TOP = {
    "apiVersion",
    "kind",
    "parallelism",
    "leaderElection",
    "clientConnection",
    "profiles",
    "percentageOfNodesToScore",
    "podInitialBackoffSeconds",
    "podMaxBackoffSeconds",
    "extenders",
    "enableProfiling",
    "enableContentionProfiling",
    "delayCacheUntilActive",
}
EXTENDER = {
    "urlPrefix",
    "filterVerb",
    "preemptVerb",
    "prioritizeVerb",
    "weight",
    "bindVerb",
    "enableHTTPS",
    "tlsConfig",
    "httpTimeout",
    "nodeCacheCapable",
    "managedResources",
    "ignorable",
}
TLS = {"insecure", "serverName", "certFile", "keyFile", "caFile", "certData", "keyData", "caData"}


@pytest.mark.parametrize("given", [{}, SECOND, {"registration": {"preempt": False}}])
def test_the_configuration_has_only_keys_that_the_scheduler_knows(given: dict[str, Any]) -> None:
    rendered = render(given)
    config, extender = rendered.scheduler_config(), rendered.extender()
    assert config["apiVersion"] == "kubescheduler.config.k8s.io/v1"
    assert config["kind"] == "KubeSchedulerConfiguration"
    assert set(config) <= TOP
    assert set(extender) <= EXTENDER
    assert set(extender["tlsConfig"]) <= TLS
    assert [set(m) for m in extender["managedResources"]] == [{"name", "ignoredByScheduler"}]


def test_the_registration_is_the_recommended_one() -> None:
    rendered = render()
    extender = rendered.extender()
    assert rendered.scheduler_config()["percentageOfNodesToScore"] == 100
    assert extender["nodeCacheCapable"] is True
    assert extender["ignorable"] is True
    assert extender["httpTimeout"] == "2s"
    assert extender["enableHTTPS"] is True
    assert extender["weight"] > 0
    assert [extender[f"{v}Verb"] for v in ("filter", "prioritize", "preempt")] == [
        "filter",
        "prioritize",
        "preempt",
    ]
    assert "bindVerb" not in extender
    assert "insecure" not in extender["tlsConfig"]


def test_every_gpu_resource_of_the_configuration_is_sent_to_us() -> None:
    resources = ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb"]
    extender = render({"config": {"hardware": {"resources": resources}}}).extender()
    assert extender["managedResources"] == [
        {"name": name, "ignoredByScheduler": False} for name in resources
    ]


@pytest.mark.parametrize(
    ("given", "host"),
    [
        (SECOND, f"pt-precision-time.{NAMESPACE}.svc"),
        ({"service": {"clusterIP": "10.96.0.99"}}, "10.96.0.99"),
        ({"registration": {"address": "192.0.2.7"}}, "192.0.2.7"),
        ({"service": {"clusterIP": "fd00::99"}}, "[fd00::99]"),
    ],
)
def test_the_scheduler_calls_an_address_it_can_reach(given: dict[str, Any], host: str) -> None:
    extender = render(given).extender()
    assert extender["urlPrefix"] == f"https://{host}:443/v1"
    assert extender["tlsConfig"]["serverName"] == f"pt-precision-time.{NAMESPACE}.svc"


@pytest.mark.parametrize("given", [{}, SECOND])
def test_scheduler_and_api_server_can_verify_the_certificate(
    given: dict[str, Any], tmp_path: Path
) -> None:
    rendered = render(given)
    secret, tls = rendered.secret(), rendered.extender()["tlsConfig"]
    authority = base64.b64decode(tls["caData"])
    (webhooks,) = rendered.all("MutatingWebhookConfiguration")
    for webhook in webhooks["webhooks"]:
        assert base64.b64decode(webhook["clientConfig"]["caBundle"]) == authority
    assert secret["ca.crt"] == authority
    assert shakes_hands(secret, authority.decode(), tls["serverName"], tmp_path)


def shakes_hands(secret: dict[str, bytes], authority: str, name: str, folder: Path) -> bool:
    """True where a client that trusts the CA accepts the server under this name."""
    for part in ("tls.crt", "tls.key"):
        (folder / part).write_bytes(secret[part])
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    client = ssl.create_default_context(cadata=authority)
    ours, theirs = socket.socketpair()

    def answer() -> None:
        with server.wrap_socket(theirs, server_side=True) as connection:
            connection.sendall(b"ready")

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with client.wrap_socket(ours, server_hostname=name) as connection:
            return connection.recv(5) == b"ready"
    finally:
        thread.join(10)


def test_with_cert_manager_the_second_scheduler_reads_the_mounted_authority() -> None:
    rendered = render(SECOND | {"certificates": {"source": "certManager"}})
    file = rendered.extender()["tlsConfig"]["caFile"]
    pod = rendered.pod("-scheduler")["spec"]
    (mount,) = (m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "ca")
    (volume,) = (v for v in pod["volumes"] if v["name"] == "ca")
    assert file == f"{mount['mountPath']}/ca.crt"
    assert volume["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]
    certificates = rendered.all("Certificate")
    assert volume["secret"]["secretName"] in {c["spec"]["secretName"] for c in certificates}


def test_cert_manager_fills_the_authority_of_the_webhook() -> None:
    rendered = render({"certificates": {"source": "certManager"}})
    (webhooks,) = rendered.all("MutatingWebhookConfiguration")
    injected = webhooks["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
    certificate = rendered.one("Certificate")
    assert injected == f"{NAMESPACE}/{certificate['metadata']['name']}"
    assert f"pt-precision-time.{NAMESPACE}.svc" in certificate["spec"]["dnsNames"]
    assert not rendered.all("Secret")


def test_an_own_certificate_is_used_as_it_is() -> None:
    own = {"source": "existing", "existing": {"secretName": "own", "caBundle": "PEM of a CA"}}
    rendered = render({"certificates": own})
    assert not rendered.all("Secret")
    assert base64.b64decode(rendered.extender()["tlsConfig"]["caData"]) == b"PEM of a CA"
    (volume,) = (v for v in rendered.pod()["spec"]["volumes"] if v["name"] == "tls")
    assert volume["secret"]["secretName"] == "own"


def test_mode_extender_runs_no_scheduler() -> None:
    rendered = render()
    assert len(rendered.all("Deployment")) == 1
    assert [role["metadata"]["name"] for role in rendered.all("Role")] == [
        "pt-precision-time-audit"
    ]
    assert "profiles" not in rendered.scheduler_config()
    client = rendered.scheduler_config()["clientConnection"]
    assert client == {"kubeconfig": "/etc/kubernetes/scheduler.conf"}
    theirs = "/var/lib/rancher/k3s/server/cred/scheduler.kubeconfig"
    moved = render({"registration": {"kubeconfig": theirs}}).scheduler_config()
    assert moved["clientConnection"] == {"kubeconfig": theirs}


@pytest.mark.parametrize(
    ("version", "tag"),
    [("1.33.4", "v1.33.4"), ("v1.31.5-eks-5d632ec", "v1.31.5"), ("v1.32.2-gke.1182003", "v1.32.2")],
)
def test_the_second_scheduler_is_of_the_version_of_the_cluster(version: str, tag: str) -> None:
    image = render(SECOND | {"kubeVersion": version}).pod("-scheduler")["spec"]["containers"][0]
    assert image["image"] == f"registry.k8s.io/kube-scheduler:{tag}"


def test_its_version_can_be_set() -> None:
    given = SECOND | {"secondScheduler": {"image": {"repository": "mirror/ks", "tag": "v1.30.1"}}}
    (container,) = render(given).pod("-scheduler")["spec"]["containers"]
    assert container["image"] == "mirror/ks:v1.30.1"


def test_pods_choose_the_second_scheduler_by_its_name() -> None:
    given = SECOND | {"secondScheduler": {"schedulerName": "by-time"}}
    config = render(given).scheduler_config()
    assert config["profiles"] == [{"schedulerName": "by-time"}]
    assert config["leaderElection"]["leaderElect"] is True
    assert config["leaderElection"]["resourceName"] != "kube-scheduler"


def test_the_second_scheduler_reads_the_configuration_written() -> None:
    rendered = render(SECOND)
    pod = rendered.pod("-scheduler")["spec"]
    (container,) = pod["containers"]
    (argument,) = (a for a in container["command"] if a.startswith("--config="))
    (mount,) = (m for m in container["volumeMounts"] if m["name"] == "config")
    (volume,) = (v for v in pod["volumes"] if v["name"] == "config")
    assert argument == f"--config={mount['mountPath']}/scheduler.yaml"
    written = rendered.one("ConfigMap", "-scheduler")["metadata"]["name"]
    assert volume["configMap"]["name"] == written


def test_a_changed_configuration_restarts_the_second_scheduler() -> None:
    own = {"source": "existing", "existing": {"secretName": "own", "caBundle": "CA"}}
    fixed = SECOND | {"certificates": own}
    marks = [
        render(fixed | {"registration": {"weight": weight}}).pod("-scheduler")["metadata"]
        for weight in (10, 10, 3)
    ]
    first, same, other = (mark["annotations"]["precision-time.io/configuration"] for mark in marks)
    assert first == same != other


def test_its_rights_are_those_of_a_scheduler_and_one_lease() -> None:
    rendered = render(SECOND)
    account = rendered.pod("-scheduler")["spec"]["serviceAccountName"]
    assert bound(rendered, account) == {
        "system:kube-scheduler",
        "system:volume-scheduler",
        "extension-apiserver-authentication-reader",
        "pt-precision-time-scheduler-leases",
    }
    election = rendered.scheduler_config()["leaderElection"]
    create, change = rendered.one("Role", "-scheduler-leases")["rules"]
    assert create["verbs"] == ["create"]
    assert change["verbs"] == ["get", "update"]
    assert change["resourceNames"] == [election["resourceName"]]
    assert election["resourceNamespace"] == NAMESPACE


def bound(rendered: Rendered, account: str) -> set[str]:
    return {
        binding["roleRef"]["name"]
        for binding in (*rendered.all("ClusterRoleBinding"), *rendered.all("RoleBinding"))
        if any(subject["name"] == account for subject in binding["subjects"])
    }


def test_the_extender_has_none_of_the_rights_of_a_scheduler() -> None:
    rendered = render(SECOND)
    account = rendered.pod()["spec"]["serviceAccountName"]
    assert not any(re.match("system:", name) for name in bound(rendered, account))
