"""The capacity report of the chart: its CronJob, and a dashboard of gauges that exist."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import sample_report
from api_fields import unknown_fields
from chart_files import CHART
from chart_render import HelmError, needs_helm, render

from predictor.capacity.render import prometheus_text
from predictor.capacity.render.prometheus import PREFIX

DASHBOARD: dict[str, Any] = json.loads(
    (CHART / "files" / "capacity-dashboard.json").read_text("utf-8")
)
ASKED = {
    name
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
    for name in re.findall(rf"{PREFIX}_\w+", target["expr"])
}
REPORT: dict[str, Any] = {
    "report": {"enabled": True, "existingClaim": "pages", "historySecret": {"name": "history"}}
}


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
    assert not pod["automountServiceAccountToken"]


@needs_helm
def test_its_pods_are_no_pods_of_the_extender() -> None:
    rendered = render(REPORT)
    labels = rendered.one("CronJob", "-report")["spec"]["jobTemplate"]["spec"]["template"][
        "metadata"
    ]["labels"]
    selector = rendered.one("Deployment")["spec"]["selector"]["matchLabels"]
    assert not selector.items() <= labels.items()


@needs_helm
@pytest.mark.parametrize("missing", ["existingClaim", "historySecret"])
def test_what_is_missing_is_named(missing: str) -> None:
    given = {"report": {k: v for k, v in REPORT["report"].items() if k != missing}}
    with pytest.raises(HelmError, match=missing):
        render(given)
