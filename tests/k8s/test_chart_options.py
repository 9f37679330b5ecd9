"""What charts of this kind are expected to let an administrator choose."""

from __future__ import annotations

import sys
from typing import Any

from chart_files import CHART, ROOT, values
from chart_render import NAMESPACE, needs_helm, render

sys.path.insert(0, str(ROOT / "tools"))

from chart_readme import readme, rows


def test_the_readme_has_the_values_of_today() -> None:
    text, of_today = ((CHART / n).read_text("utf-8") for n in ("README.md", "values.yaml"))
    assert readme(text, of_today) == text, "python tools/chart_readme.py"
    told = {path: default for path, default, _ in rows(of_today)}
    assert told["replicas"] == values()["replicas"] == 2
    assert told["config.deadline.quantile"] == 0.95
    assert told["mode"] == "observe"


@needs_helm
def test_without_a_scheduler_of_ones_own_one_installation_is_enough() -> None:
    assert values()["scheduler"] == "none"
    rendered = render({"scheduler": "none"})
    assert not [o for o in rendered.objects if "scheduler" in o["metadata"]["name"]]
    assert rendered.config()["mode"] == "observe"


@needs_helm
def test_a_hung_process_is_ended_within_seconds() -> None:
    (container,) = render().pod()["spec"]["containers"]
    live = container["livenessProbe"]
    assert live["httpGet"]["path"] == "/livez"
    assert live["periodSeconds"] * live["failureThreshold"] <= 3
    assert live["timeoutSeconds"] <= 1


@needs_helm
def test_common_labels_are_on_every_object_and_pod() -> None:
    rendered = render({"commonLabels": {"team": "hpc"}, **EVERYTHING})
    pods = [found["spec"]["template"] for found in rendered.all("Deployment")]
    pods += [o["spec"]["jobTemplate"]["spec"]["template"] for o in rendered.all("CronJob")]
    assert len(pods) == 4
    for found in (*rendered.objects, *pods):
        assert found["metadata"]["labels"]["team"] == "hpc", found


@needs_helm
def test_every_pod_that_stays_is_asked_whether_it_lives() -> None:
    rendered = render(EVERYTHING)
    for found in rendered.all("Deployment"):
        for container in found["spec"]["template"]["spec"]["containers"]:
            assert "livenessProbe" in container
            assert ("readinessProbe" in container) == (container["name"] != "history")


EVERYTHING: dict[str, Any] = {
    "scheduler": "second-scheduler",
    "history": {"follow": True, "secret": {"name": "history"}},
    "report": {"enabled": True, "existingClaim": "reports"},
}


@needs_helm
def test_further_objects_are_rendered_as_they_are_or_as_templates() -> None:
    plain = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}}
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: of-{{ .Release.Namespace }}}"
    rendered = render({"extraObjects": [plain, text]})
    names = {found["metadata"]["name"] for found in rendered.all("ConfigMap")}
    assert {"mine", f"of-{NAMESPACE}"} <= names


@needs_helm
def test_an_account_of_ones_own_is_used_everywhere() -> None:
    rendered = render({"scheduler": "none", "serviceAccount": {"create": False, "name": "mine"}})
    assert not rendered.all("ServiceAccount")
    assert rendered.pod()["spec"]["serviceAccountName"] == "mine"
    (binding,) = rendered.all("ClusterRoleBinding")
    assert binding["subjects"][0]["name"] == "mine"


@needs_helm
def test_in_the_network_of_the_host_names_are_still_resolved() -> None:
    spec = render({"hostNetwork": True}).pod()["spec"]
    assert spec["hostNetwork"] is True
    assert spec["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert "hostNetwork" not in render().pod()["spec"]


@needs_helm
def test_alerts_are_about_metrics_that_are_shown() -> None:
    from k8s_metric_names import shown_names

    rendered = render({"metrics": {"prometheusRule": {"enabled": True, "labels": {"a": "b"}}}})
    (rule,) = rendered.all("PrometheusRule")
    assert rule["metadata"]["labels"]["a"] == "b"
    group, of_capacity = rule["spec"]["groups"]
    assert len(group["rules"]) == 3
    for alert in group["rules"]:
        assert any(f"{name}{{" in alert["expr"] for name in shown_names())
    for alert in of_capacity["rules"]:
        assert "precision_time_capacity_" in alert["expr"]
    assert not render().all("PrometheusRule")


@needs_helm
def test_helm_test_checks_what_the_account_may_do() -> None:
    (pod,) = render().all("Pod")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    (container,) = pod["spec"]["containers"]
    assert container["args"][:2] == ["k8s", "check"]
    assert pod["spec"]["serviceAccountName"] == render().pod()["spec"]["serviceAccountName"]
