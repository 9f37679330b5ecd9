"""What the chart registers at the API server: a webhook, or a policy in its place."""

from __future__ import annotations

import json
from importlib.resources import files as resources_of
from pathlib import Path
from typing import Any

import celpy
import pytest
import yaml
from chart_render import NAMESPACE, HelmError, needs_helm, render
from k8s_metric_names import NoNodes

from k8s_extender import admission
from k8s_extender.config import Config
from k8s_extender.server.state import ExtenderMetrics, ServerState
from k8s_extender.server.verbs import admission_handlers

pytestmark = needs_helm

NAME_LABEL = "kubernetes.io/metadata.name"
PAYLOADS = Path(__file__).parent / "payloads" / "placement"
POLICY: dict[str, Any] = {"admission": {"mode": "policy"}, "kubeVersion": "1.36.2"}


def all_webhooks(given: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    (found,) = render(given).all("MutatingWebhookConfiguration")
    return list(found["webhooks"])


def webhooks(given: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Those for deadlines, which namespaces ask for."""
    return [hook for hook in all_webhooks(given) if not hook["name"].startswith("place.")]


def placing(given: dict[str, Any] | None = None) -> dict[str, Any]:
    (found,) = (hook for hook in all_webhooks(given) if hook["name"].startswith("place."))
    return found


def called_for(spec: dict[str, Any], hook: dict[str, Any], **metadata: Any) -> bool:
    """Whether the API server calls a webhook for a pod: its conditions, evaluated."""
    environment = celpy.Environment()
    pod = celpy.json_to_cel({"metadata": {"name": "p"} | metadata, "spec": spec})
    given = {"object": pod, "request": celpy.json_to_cel({"kind": {"kind": "Pod"}})}
    conditions = [one["expression"] for one in hook["matchConditions"]]
    programs = (environment.program(environment.compile(text)) for text in conditions)
    return all(bool(program.evaluate(given)) for program in programs)


def asking(resource: str, part: str = "containers") -> dict[str, Any]:
    plain = {"name": "c", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    asks = {"name": "g", "resources": {"limits": {"cpu": "1", resource: "1"}}}
    return {"containers": [plain], part: [plain, asks]}


@pytest.mark.parametrize(
    ("spec", "called"),
    [
        (asking("nvidia.com/gpu"), True),
        (asking("nvidia.com/mig-1g.10gb"), True),
        (asking("nvidia.com/gpu.shared"), True),
        (asking("nvidia.com/gpu", "initContainers"), True),
        (asking("deviceclass.resource.kubernetes.io/gpu.nvidia.com"), True),
        (asking("cpu") | {"resourceClaims": [{"name": "gpu"}]}, True),
        (asking("cpu"), False),
        (asking("cpu") | {"resourceClaims": []}, False),
        ({"containers": [{"name": "c"}]}, False),
        ({"containers": [{"name": "c", "resources": {}}]}, False),
        ({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}, False),
        (asking("amd.com/gpu"), False),
        (asking("nvidia.com/gpu") | {"nodeName": "n1"}, False),
    ],
)
def test_every_new_gpu_pod_is_looked_at_for_placement_and_no_other(
    spec: dict[str, Any], called: bool
) -> None:
    (rule,) = placing()["rules"]
    assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE"])
    assert called_for(spec, placing()) is called
    asks = called or "nodeName" in spec
    assert {called_for(spec, hook) for hook in webhooks()} == {asks}


def test_a_pod_is_asked_about_once_and_not_again_for_what_its_job_was_told() -> None:
    gpu, placed = asking("nvidia.com/gpu"), {admission.PLACED: "A100=100"}
    assert not called_for(gpu, placing(), annotations=placed)
    assert all_webhooks()[0] == placing()  # else what it writes would call the others again
    job = {"apiVersion": "batch/v1", "kind": "Job"}
    for hook in webhooks():
        assert called_for(gpu, hook, ownerReferences=[{"apiVersion": "v1", "kind": "Other"}])
        assert not called_for(gpu, hook, ownerReferences=[job])
        assert called_for(asking("cpu"), hook, annotations={"gpu-fraction": "0.5"})


def test_other_resources_are_gpus_where_the_configuration_says_so() -> None:
    own = {"config": {"hardware": {"resources": ["amd.com/gpu"]}}}
    assert called_for(asking("amd.com/gpu"), placing(own))


def test_the_captured_pods_with_claims_are_looked_at() -> None:
    pod = json.loads((PAYLOADS / "dra-pod-with-claim.json").read_text())
    spec = pod["spec"] | {"nodeName": None}
    del spec["nodeName"]
    assert called_for(spec, placing())


def test_a_label_keeps_namespaces_and_pods_out_of_placement() -> None:
    hook = placing()
    assert not selects(hook["namespaceSelector"], {NAME_LABEL: "kube-system"})
    assert not selects(hook["namespaceSelector"], {NAME_LABEL: NAMESPACE})
    assert selects(hook["namespaceSelector"], {NAME_LABEL: "team-a"})
    for selector in (hook["namespaceSelector"], hook["objectSelector"]):
        assert not selects(selector, {"precision-time.io/placement": "off"})
    without = all_webhooks({"config": {"placement": {"enabled": False}}})
    assert [hook["name"] for hook in without] == [hook["name"] for hook in webhooks()]


def test_a_creation_never_fails_nor_waits_long_because_of_us() -> None:
    for webhook in all_webhooks():
        assert webhook["failurePolicy"] == "Ignore"
        assert webhook["timeoutSeconds"] <= 2
        assert webhook["sideEffects"] == "NoneOnDryRun"
        assert webhook["matchPolicy"] == "Equivalent"
        assert webhook["reinvocationPolicy"] == "IfNeeded"


def test_the_webhook_calls_our_service_by_its_port() -> None:
    rendered = render({"service": {"port": 8443}})
    service = rendered.one("Service")
    (registered,) = rendered.all("MutatingWebhookConfiguration")
    for webhook in registered["webhooks"]:
        called = webhook["clientConfig"]["service"]
        assert called["name"] == service["metadata"]["name"]
        assert called["namespace"] == NAMESPACE
        assert called["port"] == service["spec"]["ports"][0]["port"]


def test_every_path_called_is_served() -> None:
    everything = {"config": {"hardware": {"claims": True}}}
    called = {hook["clientConfig"]["service"]["path"] for hook in all_webhooks(everything)}
    state = ServerState(Config(), NoNodes())
    assert called == {f"/v1/{name}" for name in admission_handlers(state, ExtenderMetrics())}


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """True where a label selector of the API matches."""
    rules = selector.get("matchExpressions", ())
    assert selector.keys() <= {"matchExpressions"}
    assert {rule["operator"] for rule in rules} <= {"In", "NotIn"}
    return all(
        (labels.get(rule["key"]) in rule["values"]) == (rule["operator"] == "In") for rule in rules
    )


@pytest.mark.parametrize(
    ("namespace", "object_", "paths"),
    [
        (None, None, []),
        ("annotated", None, ["/v1/mutate"]),
        ("fill", None, ["/v1/mutate-filling"]),
        (None, "annotated", ["/v1/mutate"]),
        (None, "fill", ["/v1/mutate-filling"]),
        ("annotated", "fill", ["/v1/mutate"]),
        ("fill", "fill", ["/v1/mutate-filling"]),
        ("other", "annotated", ["/v1/mutate"]),
    ],
)
def test_only_what_asks_for_it_is_looked_at_and_only_once(
    namespace: str | None, object_: str | None, paths: list[str]
) -> None:
    def labels(value: str | None) -> dict[str, str]:
        return {} if value is None else {"team/time": value}

    found = [
        webhook["clientConfig"]["service"]["path"]
        for webhook in webhooks({"admission": {"label": "team/time"}})
        if selects(webhook.get("namespaceSelector", {}), labels(namespace))
        and selects(webhook.get("objectSelector", {}), labels(object_))
    ]
    assert found == paths


def resources(given: dict[str, Any] | None = None) -> set[str]:
    found = {
        f"{rule['apiGroups'][0]}/{rule['apiVersions'][0]}/{rule['resources'][0]}"
        for webhook in webhooks(given)
        for rule in webhook["rules"]
    }
    operations = {op for w in webhooks(given) for rule in w["rules"] for op in rule["operations"]}
    assert operations == {"CREATE"}
    return found


def test_jobs_and_pods_are_looked_at_and_other_kinds_where_asked() -> None:
    assert resources() == {"batch/v1/jobs", "/v1/pods"}
    names = ("pytorchjobs", "jobsets", "rayjobs", "mpijobs", "trainjobs", "vcjobs", "workloads")
    kinds = dict.fromkeys(names, True)
    assert resources({"admission": {"webhook": {"kinds": kinds}}}) == {
        "batch/v1/jobs",
        "/v1/pods",
        "kubeflow.org/v1/pytorchjobs",
        "jobset.x-k8s.io/v1alpha2/jobsets",
        "ray.io/v1/rayjobs",
        "kubeflow.org/v2beta1/mpijobs",
        "trainer.kubeflow.org/v1alpha1/trainjobs",
        "batch.volcano.sh/v1alpha1/jobs",
        "kueue.x-k8s.io/v1beta1/workloads",
    }


def test_without_admission_nothing_is_registered() -> None:
    rendered = render({"admission": {"mode": "off"}})
    assert not [o for o in rendered.objects if o["kind"].startswith("Mutating")]


@pytest.mark.parametrize(
    ("version", "api"), [("1.34.0", "v1beta1"), ("1.35.2", "v1beta1"), ("1.36.0", "v1")]
)
def test_the_policy_is_of_the_api_the_cluster_has(version: str, api: str) -> None:
    rendered = render(POLICY | {"kubeVersion": version})
    kinds = [o for o in rendered.objects if o["kind"].startswith("Mutating")]
    assert {o["apiVersion"] for o in kinds} == {f"admissionregistration.k8s.io/{api}"}
    assert not rendered.all("MutatingWebhookConfiguration")


def test_the_policy_is_refused_where_the_cluster_has_none() -> None:
    with pytest.raises(HelmError, match=r"needs Kubernetes 1\.34 or newer, this is 1\.33\.9"):
        render(POLICY | {"kubeVersion": "1.33.9"})


def test_the_policy_is_the_one_without_a_chart() -> None:
    (ours,) = render(POLICY).all("MutatingAdmissionPolicy")
    source = resources_of(admission).joinpath("policy.yaml").read_text("utf-8")
    plain = next(yaml.safe_load_all(source))
    assert ours["spec"] == plain["spec"]


@pytest.mark.parametrize(
    ("namespace", "object_", "bound"),
    [
        (None, None, 0),
        ("fill", None, 1),
        ("annotated", None, 1),
        (None, "fill", 1),
        (None, "annotated", 1),
        ("fill", "fill", 1),
        ("other", "fill", 1),
        ("other", None, 0),
    ],
)
def test_the_policy_is_bound_to_what_asks_for_it_once(
    namespace: str | None, object_: str | None, bound: int
) -> None:
    rendered = render(POLICY)
    (policy,) = rendered.all("MutatingAdmissionPolicy")
    bindings = rendered.all("MutatingAdmissionPolicyBinding")
    assert {b["spec"]["policyName"] for b in bindings} == {policy["metadata"]["name"]}
    found = [b["spec"]["matchResources"] for b in bindings]
    assert bound == sum(
        selects(f.get("namespaceSelector", {}), labelled(namespace))
        and selects(f.get("objectSelector", {}), labelled(object_))
        for f in found
    )


def labelled(value: str | None) -> dict[str, str]:
    return {} if value is None else {"precision-time.io/deadline": value}


def test_with_deadlines_off_the_policy_is_not_there() -> None:
    rendered = render(POLICY | {"config": {"deadline": {"mode": "off"}}})
    assert not [o for o in rendered.objects if o["kind"].startswith("Mutating")]


def test_the_policy_follows_the_other_settings_of_deadlines() -> None:
    given = {"deadline": {"mode": "always", "kueue": False, "slinky": False}}
    (policy,) = render(POLICY | {"config": given}).all("MutatingAdmissionPolicy")
    written = {v["name"]: v["expression"] for v in policy["spec"]["variables"]}
    assert written["asked"] == "true"
    assert written["queued"].startswith("false && ")
    assert written["bridged"].startswith("false && (")


def test_the_policy_calculates_with_the_rule_of_the_configuration() -> None:
    deadline = {"startup_s": 60, "checkpoint_share": 0.5, "rounding_s": 300, "floor_s": 900}
    given = POLICY | {"config": {"deadline": deadline | {"cap_s": 7200}}}
    (policy,) = render(given).all("MutatingAdmissionPolicy")
    written = {v["name"]: v["expression"] for v in policy["spec"]["variables"]}
    assert written["wanted_s"] == (
        "int(double(variables.runs) * (variables.stated_s * 1.5 + 60.0) + 0.999)"
    )
    assert written["rounded_s"] == "(variables.wanted_s + 299) / 300 * 300"
    assert written["deadline_s"] == (
        "variables.rounded_s < 900 ? 900 : variables.rounded_s > 7200 ? 7200 : variables.rounded_s"
    )
