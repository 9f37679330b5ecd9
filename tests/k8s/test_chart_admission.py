"""What the chart registers at the API server: a webhook, or a policy in its place."""

from __future__ import annotations

from typing import Any

import pytest
from chart_render import NAMESPACE, HelmError, needs_helm, render

pytestmark = needs_helm

POLICY: dict[str, Any] = {"admission": {"mode": "policy"}, "kubeVersion": "1.36.2"}


def webhooks(given: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    (found,) = render(given).all("MutatingWebhookConfiguration")
    return list(found["webhooks"])


def test_a_creation_never_fails_nor_waits_long_because_of_us() -> None:
    for webhook in webhooks():
        assert webhook["failurePolicy"] == "Ignore"
        assert webhook["timeoutSeconds"] <= 2
        assert webhook["sideEffects"] == "None"
        assert webhook["matchPolicy"] == "Equivalent"
        assert webhook["reinvocationPolicy"] == "IfNeeded"


def test_the_webhook_calls_our_service_by_its_port() -> None:
    rendered = render({"service": {"port": 8443}})
    service = rendered.one("Service")
    (registered,) = rendered.all("MutatingWebhookConfiguration")
    for webhook in registered["webhooks"]:
        assert webhook["clientConfig"]["service"] == {
            "name": service["metadata"]["name"],
            "namespace": NAMESPACE,
            "path": "/v1/mutate",
            "port": service["spec"]["ports"][0]["port"],
        }


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """True where a label selector of the API matches."""
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    return wanted and all(
        labels.get(rule["key"]) not in rule["values"]
        for rule in selector.get("matchExpressions", ())
        if rule["operator"] == "NotIn"
    )


@pytest.mark.parametrize(("namespace", "object_"), [(False, False), (True, False), (False, True)])
def test_only_what_asks_for_it_is_looked_at_and_only_once(namespace: bool, object_: bool) -> None:
    label = {"team/time": "yes"}
    found = [
        webhook["name"]
        for webhook in webhooks({"admission": {"label": {"key": "team/time", "value": "yes"}}})
        if selects(webhook.get("namespaceSelector", {}), label if namespace else {})
        and selects(webhook.get("objectSelector", {}), label if object_ else {})
    ]
    assert len(found) == (namespace or object_)


def test_a_labelled_object_in_a_labelled_namespace_is_looked_at_once() -> None:
    label = {"precision-time.io/admission": "enabled"}
    found = [
        webhook
        for webhook in webhooks()
        if selects(webhook.get("namespaceSelector", {}), label)
        and selects(webhook.get("objectSelector", {}), label)
    ]
    assert len(found) == 1


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
    kinds = {"pytorchjobs": True, "jobsets": True, "rayjobs": True}
    assert resources({"admission": {"webhook": {"kinds": kinds}}}) == {
        "batch/v1/jobs", "/v1/pods", "kubeflow.org/v1/pytorchjobs",
        "jobset.x-k8s.io/v1alpha2/jobsets", "ray.io/v1/rayjobs",
    }  # fmt: skip


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


def test_the_policy_never_fails_a_creation_and_keeps_a_users_own_deadline() -> None:
    (policy,) = render(POLICY).all("MutatingAdmissionPolicy")
    assert policy["spec"]["failurePolicy"] == "Ignore"
    conditions = [condition["expression"] for condition in policy["spec"]["matchConditions"]]
    assert "!has(object.spec.activeDeadlineSeconds)" in conditions


def test_the_policy_is_bound_to_what_asks_for_it() -> None:
    rendered = render(POLICY)
    (policy,) = rendered.all("MutatingAdmissionPolicy")
    bindings = rendered.all("MutatingAdmissionPolicyBinding")
    assert len(bindings) == 2
    for binding in bindings:
        assert binding["spec"]["policyName"] == policy["metadata"]["name"]
        found = binding["spec"]["matchResources"]
        assert "matchLabels" in found.get("objectSelector", found["namespaceSelector"])


def test_the_policy_calculates_with_the_rule_of_the_configuration() -> None:
    deadline = {"startup_s": 60, "checkpoint_share": 0.5, "rounding_s": 300, "floor_s": 900}
    given = POLICY | {"config": {"deadline": deadline | {"cap_s": 7200}}}
    (policy,) = render(given).all("MutatingAdmissionPolicy")
    written = {v["name"]: v["expression"] for v in policy["spec"]["variables"]}
    assert written["wanted"] == "int(variables.stated * 1.500000 + 60.000000 + 0.999)"
    assert written["rounded"] == "(variables.wanted + 299) / 300 * 300"
    assert written["deadline"] == (
        "variables.rounded < 900 ? 900 : variables.rounded > 7200 ? 7200 : variables.rounded"
    )
