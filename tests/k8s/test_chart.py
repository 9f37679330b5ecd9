"""The chart as rendered by Helm: what a platform team gets, by mode and by value."""

from __future__ import annotations

import re
from typing import Any

import pytest
from api_fields import unknown_fields
from chart_files import CHART, values
from chart_render import NAMESPACE, HelmError, Rendered, lint, needs_helm, render
from k8s_configs import config_of

from k8s_extender.cli.serve import needed
from k8s_extender.config import Config
from k8s_extender.errors import ConfigError

pytestmark = needs_helm

EVERYTHING: dict[str, Any] = {
    "scheduler": "second-scheduler",
    "rules": {"rules": []},
    "image": {"pullSecrets": ["registry"], "digest": "sha256:" + "0" * 64},
    "predictor": {"existingClaim": "fitted"},
    "service": {"clusterIP": "10.96.0.99", "annotations": {"a": "b"}},
    "serviceAccount": {"annotations": {"a": "b"}},
    "metrics": {"serviceMonitor": {"enabled": True}, "dashboard": {"enabled": True}},
    "networkPolicy": {"enabled": True, "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
    "autoscaling": {"enabled": True},
    "priorityClass": {"create": True},
    "tolerations": [{"operator": "Exists"}],
    "nodeSelector": {"pool": "system"},
    "podLabels": {"a": "b"},
    "podAnnotations": {"a": "b"},
    "extraEnv": [{"name": "TZ", "value": "UTC"}],
    "extraVolumes": [{"name": "ca", "secret": {"secretName": "ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca"}],
    "affinity": {"nodeAffinity": {}},
    "secondScheduler": {
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"operator": "Exists"}],
    },
    "admission": {"webhook": {"kinds": {"pytorchjobs": True, "jobsets": True, "rayjobs": True}}},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "extender": {},
    "second-scheduler": {"scheduler": "second-scheduler"},
    "cert-manager": {"certificates": {"source": "certManager"}},
    "cert-manager, second-scheduler": {
        "scheduler": "second-scheduler",
        "certificates": {
            "source": "certManager",
            "certManager": {"issuerRef": {"name": "corporate", "kind": "ClusterIssuer"}},
        },
    },
    "own certificate": {
        "certificates": {"source": "existing", "existing": {"secretName": "own", "caBundle": "CA"}}
    },
    "admission policy": {"admission": {"mode": "policy"}, "kubeVersion": "1.36.2"},
    "older admission policy": {"admission": {"mode": "policy"}, "kubeVersion": "1.34.0"},
    "without admission": {"admission": {"mode": "off"}},
    "without metrics": {"metrics": {"enabled": False}, "networkPolicy": {"enabled": True}},
    "client certificates": {"config": {"server": {"client_ca": "/ca/ca.crt"}}},
    "everything": EVERYTHING,
}
# Kinds of custom resources, which the client of Kubernetes does not know.
CUSTOM = {"ServiceMonitor", "Issuer", "Certificate"}
CLUSTER_WIDE = {
    "ClusterRole",
    "ClusterRoleBinding",
    "MutatingWebhookConfiguration",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "PriorityClass",
}

every_variant = pytest.mark.parametrize("given", VARIANTS.values(), ids=list(VARIANTS))


def containers(rendered: Rendered) -> list[dict[str, Any]]:
    pods = [d["spec"]["template"]["spec"] for d in rendered.all("Deployment")]
    return [container for pod in pods for container in pod["containers"]]


def test_helm_finds_nothing_to_complain_of() -> None:
    assert lint() == []


@every_variant
def test_the_api_knows_every_field(given: dict[str, Any]) -> None:
    for found in render(given).objects:
        if found["kind"] not in CUSTOM:
            assert not unknown_fields(found), found["kind"]


@every_variant
def test_objects_are_in_the_namespace_of_the_release(given: dict[str, Any]) -> None:
    for found in render(given).objects:
        name, place = found["metadata"]["name"], found["metadata"].get("namespace")
        if found["kind"] in CLUSTER_WIDE:
            assert place is None
            assert NAMESPACE in name  # so two releases never share one
        else:
            reader = name.endswith("-authentication-reader")
            assert place == ("kube-system" if reader else NAMESPACE)


@every_variant
def test_no_object_is_there_twice(given: dict[str, Any]) -> None:
    names = [(o["kind"], o["metadata"]["name"]) for o in render(given).objects]
    assert len(names) == len(set(names))


@every_variant
def test_the_extender_reads_the_configuration_written(given: dict[str, Any]) -> None:
    config = config_of(render(given).config())
    assert str(config.server.certificate) == "/etc/precision-time/tls/tls.crt"
    assert str(config.server.key) == "/etc/precision-time/tls/tls.key"


def test_without_values_the_configuration_is_the_default() -> None:
    config = config_of(render({"mode": "place"}).config())
    server = config.server.model_copy(update={"certificate": None, "key": None})
    assert config.model_copy(update={"server": server}) == Config()


def test_values_reach_the_configuration() -> None:
    given = {
        "config": {
            "site": "north",
            "assumed_precision": "fp32",
            "prioritize": {"policy": "reserve"},
            "deadline": {"cap_s": 86400},
            "hardware": {"prices_per_gpu_hour": {"a100-sxm4-80gb": 2.5}},
            "server": {"max_body_bytes": 33554432},
        },
        "rules": {"rules": [{"name": "r", "match": {"name": "^rn50"}, "job": {"model": "x"}}]},
    }
    rendered = render(given)
    config = config_of(rendered.config())
    assert config.site == "north"
    assert config.assumed_precision == "fp32"
    assert config.prioritize.policy == "reserve"
    assert config.deadline.cap_s == 86400
    assert config.hardware.prices_per_gpu_hour == {"a100-sxm4-80gb": 2.5}
    assert config.server.max_body_bytes == 2**25
    assert str(config.rules) == "/etc/precision-time/config/rules.yaml"
    assert "^rn50" in rendered.one("ConfigMap")["data"]["rules.yaml"]


def test_metrics_turned_off_are_not_served() -> None:
    rendered = render(VARIANTS["without metrics"])
    assert config_of(rendered.config()).server.metrics_port is None
    assert [p["name"] for p in rendered.one("Service")["spec"]["ports"]] == ["https"]
    assert [p["name"] for p in containers(rendered)[0]["ports"]] == ["https"]
    assert len(rendered.one("NetworkPolicy")["spec"]["ingress"]) == 1


def test_a_new_port_restarts_the_pods_and_a_new_policy_does_not() -> None:
    key = "precision-time.io/server"
    marks = [
        render({"config": changed}).pod()["metadata"]["annotations"][key]
        for changed in ({}, {"prioritize": {"policy": "energy"}}, {"server": {"port": 9443}})
    ]
    assert marks[0] == marks[1] != marks[2]


@every_variant
def test_containers_are_hardened(given: dict[str, Any]) -> None:
    rendered = render(given)
    for deployment in rendered.all("Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert "hostNetwork" not in pod
    for container in containers(rendered):
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["requests"]
        assert container["livenessProbe"]
        assert container["readinessProbe"]


@every_variant
def test_names_that_refer_to_each_other_meet(given: dict[str, Any]) -> None:
    rendered = render(given)
    maps = {o["metadata"]["name"] for o in rendered.all("ConfigMap")}
    accounts = {o["metadata"]["name"] for o in rendered.all("ServiceAccount")}
    for deployment in rendered.all("Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {v["configMap"]["name"] for v in pod["volumes"] if "configMap" in v} <= maps
        assert pod["serviceAccountName"] in accounts
        for container in pod["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    ports = {port["name"] for port in rendered.pod()["spec"]["containers"][0]["ports"]}
    assert {port["targetPort"] for port in rendered.one("Service")["spec"]["ports"]} == ports


def test_probes_need_no_client_certificate() -> None:
    server = {"server": {"client_ca": "/ca/ca.crt"}}
    (open_,) = containers(render())
    (closed,) = containers(render({"config": server}))
    (bare,) = containers(render({"config": server, "metrics": {"enabled": False}}))
    assert open_["readinessProbe"]["httpGet"] == {
        "path": "/readyz",
        "port": "https",
        "scheme": "HTTPS",
    }
    assert closed["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
    assert bare["readinessProbe"]["tcpSocket"] == {"port": "https"}


def test_the_service_takes_pods_of_the_extender_only() -> None:
    rendered = render({"scheduler": "second-scheduler"})
    selector = rendered.one("Service")["spec"]["selector"].items()
    assert selector <= rendered.pod()["metadata"]["labels"].items()
    assert not selector <= rendered.pod("-scheduler")["metadata"]["labels"].items()


def test_a_stopping_pod_has_time_to_drain() -> None:
    for drain_s in (0, 20, 90.5):
        pod = render({"config": {"server": {"drain_s": drain_s}}}).pod()["spec"]
        assert pod["terminationGracePeriodSeconds"] >= drain_s + 10


def rules_of(rendered: Rendered) -> dict[str, set[str]]:
    (role,) = rendered.all("ClusterRole")
    verbs: dict[str, set[str]] = {}
    for rule in role["rules"]:
        for resource in rule["resources"]:
            verbs.setdefault(resource, set()).update(rule["verbs"])
    return verbs


def rights_of(config: Config) -> dict[str, set[str]]:
    verbs: dict[str, set[str]] = {}
    for _, resource, verb, _ in needed(config):
        verbs.setdefault(resource, set()).add(verb)
    return verbs


SILENT = {"annotate": {"pods": False, "events": False}, "deadline": {"follow": False}}


@pytest.mark.parametrize("config", [{}, SILENT])
def test_the_extender_has_the_rights_that_check_asks_for_and_no_others(
    config: dict[str, Any],
) -> None:
    kinds = {"webhook": {"kinds": {"pytorchjobs": True, "rayjobs": True, "jobsets": True}}}
    rendered = render({"config": config, "admission": kinds})
    written = rendered.config()["deadline"]["follow_kinds"]
    assert written == ["PyTorchJob", "RayJob"]
    held = rules_of(rendered)
    assert held["nodes"] == {"get", "list", "watch"}
    deadline = {**config.get("deadline", {}), "follow_kinds": written}
    needs = rights_of(config_of({**config, "deadline": deadline}))
    assert held | {"nodes": {"list", "watch"}} == needs


@every_variant
def test_no_right_reaches_secrets(given: dict[str, Any]) -> None:
    rendered = render(given)
    for role in (*rendered.all("Role"), *rendered.all("ClusterRole")):
        for rule in role["rules"]:
            assert "secrets" not in rule["resources"]
            assert "*" not in (*rule["resources"], *rule["verbs"], *rule["apiGroups"])


def test_disruptions_leave_a_replica() -> None:
    rendered = render({"scheduler": "second-scheduler"})
    fewest = min(values()["replicas"], values()["secondScheduler"]["replicas"])
    for ending in ("", "-scheduler"):
        budget = rendered.one("PodDisruptionBudget", ending)["spec"]
        assert budget["maxUnavailable"] < fewest
        covered = budget["selector"]["matchLabels"].items()
        assert covered <= rendered.pod(ending)["metadata"]["labels"].items()
        other = rendered.pod("" if ending else "-scheduler")["metadata"]["labels"].items()
        assert not covered <= other
    assert len(render().all("PodDisruptionBudget")) == 1


def test_a_platform_may_choose_the_user() -> None:
    free = {"podSecurityContext": {"runAsUser": None, "runAsGroup": None}}
    rendered = render(free | {"scheduler": "second-scheduler"})
    for ending in ("", "-scheduler"):
        context = rendered.pod(ending)["spec"]["securityContext"]
        assert context == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    own = render({"podSecurityContext": {"runAsUser": 1000650000}}).pod()["spec"]
    assert own["securityContext"]["runAsUser"] == 1000650000
    with pytest.raises(HelmError, match="schema"):
        render({"podSecurityContext": {"runAsUser": 0}})


def test_every_pod_pulls_with_the_secrets_of_the_registry() -> None:
    rendered = render({"scheduler": "second-scheduler", "image": {"pullSecrets": ["a", "b"]}})
    for ending in ("", "-scheduler"):
        secrets = rendered.pod(ending)["spec"]["imagePullSecrets"]
        assert secrets == [{"name": "a"}, {"name": "b"}]
    assert "imagePullSecrets" not in render().pod()["spec"]


def test_a_scaled_deployment_has_no_replicas_of_its_own() -> None:
    rendered = render({"autoscaling": {"enabled": True}})
    assert "replicas" not in rendered.one("Deployment")["spec"]
    target = rendered.one("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
    assert target["name"] == rendered.one("Deployment")["metadata"]["name"]


def test_the_priority_class_made_is_the_one_used() -> None:
    rendered = render(EVERYTHING)
    (made,) = rendered.all("PriorityClass")
    for ending in ("", "-scheduler"):
        assert rendered.pod(ending)["spec"]["priorityClassName"] == made["metadata"]["name"]
    named = render({"priorityClass": {"name": "system-cluster-critical"}})
    assert named.pod()["spec"]["priorityClassName"] == "system-cluster-critical"


def test_a_digest_counts_before_the_tag() -> None:
    image = {"repository": "registry.example/pt", "tag": "1", "digest": "sha256:" + "a" * 64}
    found = containers(render({"image": image}))[0]["image"]
    assert found == f"registry.example/pt@{image['digest']}"
    version = re.search(r"^appVersion: (.+)$", (CHART / "Chart.yaml").read_text("utf-8"), re.M)
    assert version
    assert containers(render())[0]["image"] == f"precision-time:{version[1]}"


def test_a_name_that_no_gpu_has_is_refused_as_the_program_refuses_it() -> None:
    for field, wrong in (
        ("products", {"A100": "banana"}),
        ("node_label_gpus", {"pool": ""}),
        ("prices_per_gpu_hour", {"banana": 2}),
    ):
        values = {"config": {"hardware": {field: wrong}}}
        with pytest.raises(HelmError, match=f"config.hardware.{field}.* names no GPU"):
            render(values)
        with pytest.raises(ConfigError):
            config_of({"hardware": {field: wrong}})
        assert render(values | {"predictor": {"existingClaim": "own-gpus"}}).config()
    for name in ("a100", "NVIDIA A100-SXM4-80GB", "Tesla V100_SXM2 16GB", "H100-SXM5-80GB-SHARED"):
        hardware = {"products": {"own": name}}
        assert render({"config": {"hardware": hardware}}).config()["hardware"]["products"]
        assert config_of({"hardware": hardware})


def test_values_that_cannot_be_are_refused() -> None:
    for wrong in ({"scheduler": "both"}, {"config": {"server": {"port": None}}}, {"replica": 2}):
        with pytest.raises(HelmError, match="schema"):
            render(wrong)
