"""The capacity report of the chart: its CronJob, and a dashboard of gauges that exist."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import sample_report
from api_fields import unknown_fields
from chart_files import CHART
from chart_render import HelmError, needs_helm, render

from predictor.site.capacity.render.files import PREFIX, prometheus_text

DASHBOARD: dict[str, Any] = json.loads(
    (CHART / "files" / "capacity-dashboard.json").read_text("utf-8")
)
ASKED = {
    name
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
    for name in re.findall(rf"{PREFIX}\w+", target["expr"])
}
SECRET: dict[str, Any] = {"secret": {"name": "history"}}
REPORT: dict[str, Any] = {"report": {"enabled": True, "existingClaim": "pages"}, "history": SECRET}


def test_every_gauge_that_is_asked_for_is_in_a_full_report() -> None:
    shown = set(re.findall(r"^# TYPE (\S+)", prometheus_text(sample_report.full()), re.MULTILINE))
    assert shown >= ASKED
    assert len(ASKED) > 12


def test_panels_do_not_overlap() -> None:
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


@needs_helm
def test_the_chart_installs_the_dashboard_unchanged() -> None:
    found = render({"metrics": {"dashboard": {"enabled": True}}}).one("ConfigMap", "-dashboard")
    assert json.loads(found["data"]["precision-time-capacity.json"]) == DASHBOARD


@needs_helm
def test_there_is_no_cron_job_unless_wanted() -> None:
    assert render().all("CronJob") == []


@needs_helm
def test_the_cron_job_reads_the_history_and_writes_to_the_claim() -> None:
    job = render(REPORT).one("CronJob", "-report")
    assert unknown_fields(job) == []
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"][:4] == ["capacity", "report", "--since", "7d"]
    assert container["env"][0]["valueFrom"]["secretKeyRef"] == {"name": "history", "key": "url"}
    assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "pages"}
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["args"][-2:] == ["--queue", "kubernetes"]
    accounts = [found["metadata"]["name"] for found in render(REPORT).all("ServiceAccount")]
    assert pod["serviceAccountName"] in accounts


@needs_helm
def test_without_the_queue_the_cron_job_never_meets_the_api_server() -> None:
    rendered = render({**REPORT, "report": {**REPORT["report"], "queue": False}})
    pod = rendered.one("CronJob", "-report")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert not pod["automountServiceAccountToken"]
    assert "--queue" not in pod["containers"][0]["args"]
    names = [found["metadata"]["name"] for found in rendered.objects]
    assert not [name for name in names if name.endswith("-history")]


@needs_helm
def test_its_pods_are_no_pods_of_the_extender() -> None:
    rendered = render(REPORT)
    labels = rendered.one("CronJob", "-report")["spec"]["jobTemplate"]["spec"]["template"][
        "metadata"
    ]["labels"]
    selector = rendered.one("Deployment")["spec"]["selector"]["matchLabels"]
    assert not selector.items() <= labels.items()


@needs_helm
@pytest.mark.parametrize(
    ("missing", "given"),
    [
        ("report.existingClaim", {"report": {"enabled": True}, "history": SECRET}),
        ("history.secret.name", {"report": {"enabled": True, "existingClaim": "pages"}}),
        ("history.secret.name", {"history": {"follow": True}}),
    ],
)
def test_what_is_missing_is_named(missing: str, given: dict[str, Any]) -> None:
    with pytest.raises(HelmError, match=missing):
        render(given)


@needs_helm
def test_nothing_follows_the_cluster_unless_wanted() -> None:
    assert [found["metadata"]["name"] for found in render(REPORT).all("Deployment")] == [
        "pt-precision-time"
    ]


@needs_helm
def test_the_follower_reads_jobs_pods_and_nodes_and_changes_nothing(tmp_path: Path) -> None:
    rendered = render({"history": {"follow": True, **SECRET}})
    deployment = rendered.one("Deployment", "-history")
    assert unknown_fields(deployment) == []
    assert deployment["spec"]["replicas"] == 1
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"][:4] == ["history", "ingest", "kubernetes", "--follow"]
    probe = container["livenessProbe"]["exec"]["command"]
    alive = tmp_path / "alive"
    for age_s, status in ((0, 0), (1000, 1)):  # as the kubelet runs it
        alive.touch()
        os.utime(alive, (time.time() - age_s,) * 2)
        assert "/tmp/alive" in container["args"]
        here = probe[-1].replace("/tmp/alive", str(alive))
        assert subprocess.run([sys.executable, "-c", here], check=False).returncode == status
    assert container["env"][0]["valueFrom"]["secretKeyRef"] == {"name": "history", "key": "url"}
    assert container["securityContext"]["readOnlyRootFilesystem"]
    (role,) = (r for r in rendered.all("ClusterRole") if r["metadata"]["name"].endswith("-history"))
    assert {resource for rule in role["rules"] for resource in rule["resources"]} == {
        "nodes",
        "pods",
        "jobs",
    }
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    (bound,) = (
        b for b in rendered.all("ClusterRoleBinding") if b["roleRef"]["name"].endswith("-history")
    )
    assert bound["subjects"][0]["name"] == pod["serviceAccountName"] == "pt-precision-time-history"
    extender = rendered.one("Deployment")["spec"]["selector"]["matchLabels"]
    assert not extender.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
